// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

namespace strata::session {

// Initial state whose weights a caller gives, tensor by tensor and in pieces of at most 64 Ki
// elements; moments are zero. `spec` must outlive it.
class GivenState : public exec::StateSource {
 public:
  using Weights = std::function<void(int segment, int parameter, int64_t first, std::span<float>)>;

  GivenState(const model::ModelSpec& spec, const Weights& weights)
      : spec_(spec), weights_(weights) {}

  void read(const exec::ChunkState& chunk) override;

 private:
  const model::ModelSpec& spec_;
  const Weights weights_;
};

}  // namespace strata::session

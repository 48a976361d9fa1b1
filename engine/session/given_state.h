// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/base/recipe.h"
#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

// State that a caller gives and takes tensor by tensor, in pieces of at most 64 Ki elements.
namespace strata::session {

// Initial state. Without moments they are zero. `spec` must outlive it.
class GivenState : public exec::StateSource {
 public:
  using Values = std::function<void(int segment, int parameter, int64_t first, std::span<float>)>;

  GivenState(const model::ModelSpec& spec, Values weights, Values exp_avg = nullptr,
             Values exp_avg_sq = nullptr)
      : spec_(spec),
        weights_(std::move(weights)),
        exp_avg_(std::move(exp_avg)),
        exp_avg_sq_(std::move(exp_avg_sq)) {}

  void read(const exec::ChunkState& chunk) override;

 private:
  void fill(const Values& give, int segment, int64_t first, std::span<float> values) const;

  const model::ModelSpec& spec_;
  const Values weights_, exp_avg_, exp_avg_sq_;
  std::vector<float> values_;
};

// Passes one plane of all trained tensors to a visitor; `plane` kHi means the f32 masters. `spec`
// must outlive it.
class PlaneSink : public exec::StateSink {
 public:
  using Visitor =
      std::function<void(int segment, int parameter, int64_t first, std::span<const float>)>;

  PlaneSink(const model::ModelSpec& spec, Plane plane, const Visitor& visitor)
      : spec_(spec), plane_(plane), visitor_(visitor) {}

  void write(const exec::ChunkState& chunk) override;

 private:
  const model::ModelSpec& spec_;
  const Plane plane_;
  const Visitor& visitor_;
  std::vector<float> values_;
};

}  // namespace strata::session

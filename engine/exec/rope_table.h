// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

namespace strata::exec {

// Cosine and sine of every position and pair of a head, as kernels/rope.h takes them: [T, D/2].
// In f32 where Transformers computes in f32: pretrained weights have seen exactly these roundings,
// and at long positions they show.
class RopeTable {
 public:
  RopeTable(const model::Rope& rope, int64_t head_size, int64_t length);

  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  std::vector<float> cos_, sin_;
};

}  // namespace strata::exec

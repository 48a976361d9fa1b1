// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

namespace strata::exec {

// Cosine and sine of every position and turned pair of a head, as kernels/rope.h takes them:
// [T, R/2] cosines, then as many sines. `table` counts as model::rope_tables does. longrope takes
// its short or long factors by T, as Transformers does for a batch of T. In f32 where Transformers
// computes in f32: pretrained weights have seen exactly these roundings, and at long positions they
// show.
std::vector<float> rope_values(const model::Architecture& architecture, int table, int64_t length);
std::vector<float> rope_values(const model::Rope& rope, int64_t head_size, int64_t length);

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/footprint.h"

namespace strata::exec {

// Cosine and sine of every position and rotated pair of a head, for kernels/rope.h: [T, R/2]
// cosines, then as many sines; of context ranks, of the positions that a rank has. `table` is an
// index below model::rope_tables. longrope takes its short or long factors by the length of the
// whole sequence, as Transformers does for a batch. Computes in f32 wherever Transformers does,
// because weights were trained with exactly these roundings, which matter at long positions.
std::vector<float> rope_values(const model::Architecture& architecture, int table,
                               const model::BatchShape& shape);
std::vector<float> rope_values(const model::Rope& rope, int64_t head_size, int64_t length);

}  // namespace strata::exec

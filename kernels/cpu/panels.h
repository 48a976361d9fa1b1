// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/matmul.h"

// The three products with a weight matrix by our own register blocks, for machines whose vectors
// hold 16 elements and for 32 to 256 rows. Weights are read once, in memory order, and outputs are
// prefetched: with few rows, memory traffic costs as much as arithmetic, and these products are
// faster than the library's (see kernels/README.md).
//
// Each output is a sum of chains of fused multiply-adds over ascending parts of the summed
// dimension; the parts depend on shapes alone.
namespace strata::kernels::cpu {

constexpr int64_t kPanelCols = 64;    // four vectors
constexpr int64_t kRegisterRows = 6;  // of a block of accumulators
constexpr int64_t kBandRows = 48;     // whole register blocks and whole vectors

// Whether panels compute a shape on this machine; depends only on the shape and the machine's
// vectors.
bool panels_serve(const MatMulForward& op);
bool panels_serve(const MatMulInput& op);
bool panels_serve(const MatMulWeight& op);

void forward_by_panels(const MatMulForward& op);
void input_by_panels(const MatMulInput& op);
void weight_by_panels(const MatMulWeight& op);  // computes dw, not dbias

// Scratch of each of them.
}  // namespace strata::kernels::cpu

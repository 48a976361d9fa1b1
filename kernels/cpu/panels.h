// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/matmul.h"

// The three products with a weight matrix on our own register blocks, for machines whose vectors
// hold 16 elements and for 32 to 256 rows. Weights are read once, in the order in which they lie in
// memory, and what is written is asked for before it is needed: with few rows, a product is as much
// a walk through memory as arithmetic, and there these are faster than the library's (see
// kernels/README.md).
//
// Each output is a sum of chains of fused multiply-adds over ascending parts of the summed
// dimension; the parts depend on shapes alone.
namespace strata::kernels::cpu {

constexpr int64_t kPanelCols = 64;    // four vectors
constexpr int64_t kRegisterRows = 6;  // of a block of accumulators
constexpr int64_t kBandRows = 48;     // whole register blocks and whole vectors

// Which shapes they serve here; depends on the machine's vectors and on shapes alone.
bool panels_serve(const MatMulForward& op);
bool panels_serve(const MatMulInput& op);
bool panels_serve(const MatMulWeight& op);

void forward_by_panels(const MatMulForward& op);
void input_by_panels(const MatMulInput& op);
void weight_by_panels(const MatMulWeight& op);  // dw alone

// Scratch of each of them.
}  // namespace strata::kernels::cpu

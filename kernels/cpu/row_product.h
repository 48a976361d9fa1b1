// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/matmul.h"

// Products of rows with a weight matrix in which each row has the bits that it has alone. An output
// is a sum over parts of kRowDepth inputs; a part is one vector of chains over ascending inputs,
// whose lanes are then added.
namespace strata::kernels::cpu {

constexpr int64_t kRowDepth = 1024;

void forward_by_row(const MatMulForward& op);

}  // namespace strata::kernels::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/device.h"

// The ops of the device's table, by family in ops_*.cu.
namespace strata::kernels::cuda {

#define STRATA_OP(member, Op) void issue_##member(Queue& queue, const Op& op);
STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP

}  // namespace strata::kernels::cuda

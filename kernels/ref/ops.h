// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

// Plain loops that follow the formulas of each op's header. Sums run in f64 in ascending order:
// faster backends, which sum in other orders, are compared with these.
namespace strata::kernels::ref {

#define STRATA_OP(name, Op) void name(const Op& op);
STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
void convert_in(const ConvertIn& op);
void convert_out(const ConvertOut& op);

}  // namespace strata::kernels::ref

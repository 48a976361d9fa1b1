// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

namespace strata::kernels::cpu {

#define STRATA_OP(name, Op) void name(const Op& op);
STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
void convert_in(const ConvertIn& op);
void convert_out(const ConvertOut& op);

}  // namespace strata::kernels::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/device.h"

namespace strata::kernels {

// The table of a device whose queues run ops of a host table: `Issue<Member>::op(queue, op)` issues
// the op at OpTable<>::*Member.
template <template <auto> class Issue>
constexpr DeviceOps make_issue_table(const char* name) {
  using T = OpTable<>;
  return {.name = name,
#define STRATA_OP(member, Op) .member = Issue<&T::member>::op,
          STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
  };
}

// The op struct of a member of a table: `Op` of void (*)(Where..., const Op&).
template <typename Member>
struct OpOf;
template <typename Table, typename Op>
struct OpOf<void (*Table::*)(const Op&)> {
  using type = Op;
};

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/ops.h"

namespace strata::kernels {

const Backend& ref_backend() {
  static constexpr Backend kBackend = {
      {.name = "ref",
#define STRATA_OP(member, Op) .member = ref::member,
       STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
      },
      ref::convert_in,
      ref::convert_out,
      KernelSet::kRef,
  };
  return kBackend;
}

}  // namespace strata::kernels

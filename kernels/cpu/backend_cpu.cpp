// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops.h"
#include "kernels/cpu/product.h"
#include "kernels/ref/ops.h"

namespace strata::kernels {

// Copies of rows: the plain loops are as fast as memory.
void cpu::gather_rows(const GatherRows& op) {
  ref::gather_rows(op);
}

const Backend& cpu_backend() {
  [[maybe_unused]] static const bool is_prepared = (cpu::prepare_products(), true);
  static constexpr Backend kBackend = {
      {.name = "cpu",
#define STRATA_OP(member, Op) .member = cpu::member,
       STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
      },
      cpu::convert_in,
      cpu::convert_out,
      KernelSet::kCpu,
  };
  return kBackend;
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/product.h"
#include "kernels/ref/ops.h"

namespace strata::kernels {

// Copies of rows: the plain loops are as fast as memory.
void cpu::gather_rows(const GatherRows& op) {
  ref::gather_rows(op);
}

void cpu::copy_rows(const CopyRows& op) {
  constexpr int64_t kTaskBytes = 256 << 10;
  const int64_t each = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(1, op.row_bytes));
  parallel_blocks(op.rows, each, [&](int64_t begin, int64_t end) {
    CopyRows part = op;
    part.rows = end - begin;
    part.x = static_cast<const std::byte*>(op.x) + begin * op.x_stride;
    part.y = static_cast<std::byte*>(op.y) + begin * op.y_stride;
    ref::copy_rows(part);
  });
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

// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_rows.h"

#include <cstring>

#include "engine/base/check.h"
#include "kernels/ref/ops.h"

namespace strata::kernels::ref {

void gather_rows(const GatherRows& op) {
  const auto* x = static_cast<const std::byte*>(op.x);
  auto* y = static_cast<std::byte*>(op.y);
  for (int64_t b = 0; b < op.rows; ++b) {
    STRATA_CHECK(op.position[b] >= 0 && op.position[b] < op.length);
    std::memcpy(y + b * op.row_bytes,
                x + ((op.together ? 0 : b * op.length) + op.position[b]) * op.row_bytes,
                static_cast<size_t>(op.row_bytes));
  }
}

void copy_rows(const CopyRows& op) {
  const auto* x = static_cast<const std::byte*>(op.x);
  auto* y = static_cast<std::byte*>(op.y);
  for (int64_t i = 0; i < op.rows; ++i) {
    std::memcpy(y + i * op.y_stride, x + i * op.x_stride, static_cast<size_t>(op.row_bytes));
  }
}

}  // namespace strata::kernels::ref

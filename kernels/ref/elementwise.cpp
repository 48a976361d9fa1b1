// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void add_residual(const AddResidual& op) {
  STRATA_CHECK(is_weight_type(op.dtype));
  for (int64_t i = 0; i < op.count; ++i) {
    store(op.dtype, op.y, i, load(op.dtype, op.x, i) + load(op.a, i));
  }
}

void add(const Add& op) {
  for (int64_t i = 0; i < op.count; ++i) op.y[i] += op.a[i];
}

void fill(const Fill& op) {
  for (int64_t i = 0; i < op.count; ++i) store(op.y, i, op.value);
}

void soft_cap(const SoftCap& op) {
  STRATA_CHECK(op.cap > 0.0f);
  for (int64_t i = 0; i < op.count; ++i) {
    op.y[i] = static_cast<float>(op.cap * std::tanh(double{op.y[i]} / op.cap));
  }
}

void cast(const Cast& op) {
  STRATA_CHECK(is_weight_type(op.dtype));
  for (int64_t i = 0; i < op.count; ++i) store(op.y, i, load(op.dtype, op.x, i));
}

}  // namespace strata::kernels::ref

// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.h"

#include <span>

#include "engine/base/check.h"
#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void ordered_sum(const OrderedSum& op) {
  STRATA_CHECK(is_ordered_sum(op));
  const auto sources = std::span(op.x).first(static_cast<size_t>(op.sources));
  const Interior y = {op.y, op.to};
  for (int64_t i = 0; i < op.count; ++i) {
    float sum = load(op.from, sources[0], i);
    if (op.before != nullptr) sum = op.before[i] + sum;
    for (const void* x : sources.subspan(1)) sum += load(op.from, x, i);
    store(y, i, canonical(sum));
  }
}

}  // namespace strata::kernels::ref

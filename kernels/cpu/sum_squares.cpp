// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum_squares.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sum_squares.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The 16 lanes of the tree in the header are 16 / Lanes vectors. The square of an f32 is exact in
// f64, so a fused multiply-add gives the same bits.
double block_sum(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<double>()));
  constexpr int64_t kVectors = 16 / kLanes;
  constexpr int64_t kAhead = 1024;
  hn::Vec<decltype(d)> sum[kVectors];
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    // The processor's own prefetching stops at the end of a page.
    hwy::Prefetch(x + i + kAhead);
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto value = hn::PromoteTo(d, hn::LoadU(half, x + i + v * kLanes));
      sum[v] = hn::MulAdd(value, value, sum[v]);
    }
  }
  HWY_ALIGN double lane[16];
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, lane + v * kLanes);
  for (; i < count; ++i) {
    const double value = x[i];
    lane[i % 16] += value * value;
  }
  for (int width = 8; width >= 1; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(block_sum);

}  // namespace

void sum_squares(const SumSquares& op) {
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, 1));
  double* sums = reinterpret_cast<double*>(op.workspace.data);
  each_range(op, [&](const float* x, int64_t count, SquaresPartial* out) {
    const int64_t blocks = ceil_div(count, kSumSquaresBlock);
    parallel_for(blocks, [&](int64_t index, int) {
      const int64_t begin = index * kSumSquaresBlock;
      sums[index] =
          HWY_DYNAMIC_DISPATCH(block_sum)(x + begin, std::min(kSumSquaresBlock, count - begin));
    });
    double sum = 0.0;
    for (int64_t index = 0; index < blocks; ++index) sum += sums[index];
    *out = {sum, std::isfinite(sum) ? 0.0 : 1.0};
  });
}

}  // namespace cpu
}  // namespace strata::kernels
#endif  // HWY_ONCE

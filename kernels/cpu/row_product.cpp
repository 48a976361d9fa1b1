// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/row_product.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_product.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

// With one row a product reads w once, from memory: four rows of w at a time are four streams, and
// the lines of the next four are prefetched on the way. With more rows, a block of w stays in the
// second cache while all rows go over it.
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// The accumulators of a block use most registers.
constexpr int kProductRows = HWY_TARGET <= HWY_AVX3 ? 6 : 2;
constexpr int kProductOutputs = 4;

// Rows [row, row + kRows) times outputs [out, out + kOutputs), of inputs [first, first + depth).
template <typename Weight, int kRows, int kOutputs>
HWY_INLINE void row_block(const MatMulForward& op, int64_t row, int64_t out, int64_t first,
                          int64_t depth) {
  const F32 d;
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  const float* HWY_RESTRICT x = static_cast<const float*>(op.x.data) + row * x_stride + first;
  const Weight* HWY_RESTRICT w = static_cast<const Weight*>(op.w) + out * op.inputs + first;
  const int64_t ahead = kProductOutputs * op.inputs;
  VF32 sum[kRows][kOutputs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) sum[r][o] = hn::Zero(d);
  }
  for_vectors(depth, [&](auto, int64_t p, auto end) HWY_ATTR {
    VF32 right[kOutputs];
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      const Weight* at = w + o * op.inputs + p;
      right[o] = load_as(d, at, end);
      if constexpr (kRows == 1) __builtin_prefetch(at + ahead, 0, 2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF32 left = load_as(d, x + r * x_stride + p, end);
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) sum[r][o] = hn::MulAdd(left, right[o], sum[r][o]);
    }
  });
  const int64_t y_stride = stride_or(op.y_stride, op.outputs);
  for (int r = 0; r < kRows; ++r) {
    float* y = static_cast<float*>(op.y.data) + (row + r) * y_stride + out;
    for (int o = 0; o < kOutputs; ++o) {
      float part = hn::GetLane(hn::SumOfLanes(d, sum[r][o]));
      if (first == 0 && op.bias != nullptr) part += load(op.dtype, op.bias, out + o);
      y[o] = first > 0 || op.accumulate ? y[o] + part : part;
    }
  }
}

template <typename Weight, int kRows>
HWY_NOINLINE void rows_block(const MatMulForward& op, int64_t row, int64_t begin, int64_t end,
                             int64_t first, int64_t depth) {
  int64_t out = begin;
  for (; out + kProductOutputs <= end; out += kProductOutputs) {
    row_block<Weight, kRows, kProductOutputs>(op, row, out, first, depth);
  }
  for (; out < end; ++out) row_block<Weight, kRows, 1>(op, row, out, first, depth);
}

template <typename Weight>
void band_of(const MatMulForward& op, int64_t begin, int64_t end) {
  for (int64_t first = 0; first < op.inputs; first += kRowDepth) {
    const int64_t depth = std::min(kRowDepth, op.inputs - first);
    int64_t row = 0;
    for (; row + kProductRows <= op.rows; row += kProductRows) {
      rows_block<Weight, kProductRows>(op, row, begin, end, first, depth);
    }
    if constexpr (kProductRows > 2) {
      for (; row + 3 <= op.rows; row += 3) {
        rows_block<Weight, 3>(op, row, begin, end, first, depth);
      }
      for (; row + 2 <= op.rows; row += 2) {
        rows_block<Weight, 2>(op, row, begin, end, first, depth);
      }
    }
    for (; row < op.rows; ++row) rows_block<Weight, 1>(op, row, begin, end, first, depth);
  }
}

// Outputs [begin, end) of all rows.
void output_band(const MatMulForward& op, int64_t begin, int64_t end) {
  with_weight_type(op.dtype, [&](auto type) { band_of<decltype(type)>(op, begin, end); });
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(output_band);

constexpr int64_t kBandOutputs = 64;
constexpr int64_t kSmallProduct = 32 * 1024;  // multiply-adds that are not worth two threads

}  // namespace

void forward_by_row(const MatMulForward& op) {
  STRATA_CHECK(op.x.dtype == DType::kF32 && op.y.dtype == DType::kF32);
  if (op.rows * op.outputs * op.inputs <= kSmallProduct) {
    return HWY_DYNAMIC_DISPATCH(output_band)(op, 0, op.outputs);
  }
  parallel_for(ceil_div(op.outputs, kBandOutputs), [&](int64_t band, int) {
    const int64_t end = std::min(op.outputs, (band + 1) * kBandOutputs);
    HWY_DYNAMIC_DISPATCH(output_band)(op, band * kBandOutputs, end);
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE

// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_shares.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// offset + w; without an offset, the stored weight.
template <bool kOffset, typename W, typename End>
HWY_INLINE VF32 factor_at(F32 d, const W* w, int64_t i, float offset, End end) {
  const VF32 stored = load_as(d, w + i, end);
  if constexpr (kOffset) return hn::Add(hn::Set(d, offset), stored);
  return stored;
}

template <typename X>
HWY_INLINE float sum_of_squares(const X* x, int64_t cols) {
  const F32 df;
  VF32 squares = hn::Zero(df);
  for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 value = load_as(d, x + i, end);
    squares = hn::MulAdd(value, value, squares);
  });
  return hn::GetLane(hn::SumOfLanes(df, squares));
}

template <bool kOffset, typename X, typename W>
HWY_INLINE float forward_group(const X* x, const W* w, float* y, float squares,
                               const RmsNormForward& op) {
  const float mean = squares / static_cast<float>(mean_cols(op));
  const float rstd = 1.0f / std::sqrt(mean + op.eps);
  for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 normed = hn::Mul(load_as(d, x + i, end), hn::Set(d, rstd));
    store_as(d, hn::Mul(normed, factor_at<kOffset>(d, w, i, op.offset, end)), y + i, end);
  });
  return rstd;
}

template <bool kOffset, typename X, typename W>
void forward_rows_of(const RmsNormForward& op, int64_t begin, int64_t end_row) {
  const W* w = static_cast<const W*>(op.w);
  const int64_t x_stride = stride_or(op.x_stride, op.groups * op.cols);
  const int64_t y_stride = stride_or(op.y_stride, op.groups * op.cols);
  for (int64_t row = begin; row < end_row; ++row) {
    for (int64_t group = 0; group < op.groups; ++group) {
      const X* x = static_cast<const X*>(op.x) + row * x_stride + group * op.cols;
      const float squares = op.all_sums ? op.all_sums[row] : sum_of_squares(x, op.cols);
      if (op.own_sums) {
        op.own_sums[row] = squares;
        continue;
      }
      float* y = op.y + row * y_stride + group * op.cols;
      const float rstd = forward_group<kOffset>(x, w, y, squares, op);
      if (op.rstd) op.rstd[row * op.groups + group] = rstd;
    }
  }
}

// One group's operands.
template <typename X, typename W>
struct Group {
  const X* x;
  const W* w;
  const float* dy;
  const X* dres;
  X* dx;  // null: not computed
  float rstd;
  float* dw;         // dy * n is added here; null: not computed
  float* own_sum;    // the row's, and nothing else; null: all
  const float* sum;  // the row's, of all ranks; null: own columns are all
};

template <bool kOffset, typename X, typename W>
HWY_INLINE void backward_group(const Group<X, W>& at, const RmsNormBackward& op) {
  const F32 df;
  VF32 dot = hn::Zero(df);
  for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 n = hn::Mul(load_as(d, at.x + i, end), hn::Set(d, at.rstd));
    const VF32 product = hn::Mul(load_as(d, at.dy + i, end), n);
    dot = hn::MulAdd(product, factor_at<kOffset>(d, at.w, i, op.offset, end), dot);
    if (at.dw) store_as(d, hn::Add(load_as(d, at.dw + i, end), product), at.dw + i, end);
  });
  const float own = hn::GetLane(hn::SumOfLanes(df, dot));
  if (at.own_sum) *at.own_sum = own;
  if (!at.dx) return;
  const float mean = (at.sum ? *at.sum : own) / static_cast<float>(mean_cols(op));
  for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 n = hn::Mul(load_as(d, at.x + i, end), hn::Set(d, at.rstd));
    const VF32 g =
        hn::Mul(load_as(d, at.dy + i, end), factor_at<kOffset>(d, at.w, i, op.offset, end));
    const VF32 change = hn::Mul(hn::NegMulAdd(n, hn::Set(d, mean), g), hn::Set(d, at.rstd));
    const VF32 residual = at.dres ? load_as(d, at.dres + i, end) : hn::Zero(d);
    store_as(d, hn::Add(residual, change), at.dx + i, end);
  });
}

// Computes dx of rows [begin, end_row) and, unless `dw` is null, adds their sum of dy * n to it.
template <bool kOffset, typename X, typename W>
void backward_rows_of(const RmsNormBackward& op, int64_t begin, int64_t end_row, float* dw) {
  const int64_t x_stride = stride_or(op.x_stride, op.groups * op.cols);
  const int64_t dy_stride = stride_or(op.dy_stride, op.groups * op.cols);
  const int64_t dx_stride = stride_or(op.dx_stride, op.groups * op.cols);
  for (int64_t row = begin; row < end_row; ++row) {
    for (int64_t group = 0; group < op.groups; ++group) {
      const int64_t first = group * op.cols;
      const X* dres = static_cast<const X*>(op.dres);
      X* dx = static_cast<X*>(op.dx);
      backward_group<kOffset, X, W>(
          {static_cast<const X*>(op.x) + row * x_stride + first, static_cast<const W*>(op.w),
           op.dy + row * dy_stride + first, dres ? dres + row * dx_stride + first : nullptr,
           dx ? dx + row * dx_stride + first : nullptr, op.rstd[row * op.groups + group], dw,
           op.own_sums ? op.own_sums + row : nullptr, op.all_sums ? op.all_sums + row : nullptr},
          op);
    }
  }
}

// Calls body with a value of x's element type and a value of w's.
template <typename Op, typename Body>
void with_types(const Op& op, const Body& body) {
  with_weight_type(op.dtype, [&](auto w) { op.inside ? body(float{}, w) : body(w, w); });
}

void forward_rows(const RmsNormForward& op, int64_t begin, int64_t end) {
  with_types(op, [&](auto x, auto w) {
    using X = decltype(x);
    using W = decltype(w);
    op.offset == 0.0f ? forward_rows_of<false, X, W>(op, begin, end)
                      : forward_rows_of<true, X, W>(op, begin, end);
  });
}

void backward_rows(const RmsNormBackward& op, int64_t begin, int64_t end, float* dw) {
  with_types(op, [&](auto x, auto w) {
    using X = decltype(x);
    using W = decltype(w);
    op.offset == 0.0f ? backward_rows_of<false, X, W>(op, begin, end, dw)
                      : backward_rows_of<true, X, W>(op, begin, end, dw);
  });
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

}  // namespace

void rms_norm_forward(const RmsNormForward& op) {
  STRATA_CHECK(is_rms_norm(op));
  parallel_blocks(op.rows, kShareRows, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(op, begin, end);
  });
}

void rms_norm_backward(const RmsNormBackward& op) {
  STRATA_CHECK(is_rms_norm(op));
  STRATA_CHECK(!op.dw || op.workspace.bytes >= workspace_bytes(op, 1));
  STRATA_CHECK(!op.own_sums || (!op.dw && !op.dx));
  float* shares = reinterpret_cast<float*>(op.workspace.data);
  const int64_t blocks = ceil_div(op.rows, kShareRows);
  parallel_for(blocks, [&](int64_t index, int) {
    float* share = op.dw ? shares + index * op.cols : nullptr;
    if (share) std::fill_n(share, op.cols, 0.0f);
    HWY_DYNAMIC_DISPATCH(backward_rows)
    (op, index * kShareRows, std::min(op.rows, (index + 1) * kShareRows), share);
  });
  if (op.dw) add_shares(shares, blocks, op.cols, op.accumulate, op.dw);
}

}  // namespace cpu

}  // namespace strata::kernels
#endif  // HWY_ONCE

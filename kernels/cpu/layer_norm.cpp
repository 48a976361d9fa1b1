// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_shares.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_norm.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// Keeps the lanes of a vector that are within [0, count); the others become zero.
template <typename End>
HWY_INLINE VF32 within(F32 d, VF32 value, End end) {
  if constexpr (!End::kTail) return value;
  return hn::IfThenElseZero(hn::FirstN(d, end.count), value);
}

template <typename T>
void forward_rows_of(const LayerNormForward& op, int64_t begin, int64_t end_row) {
  const F32 df;
  const T* w = static_cast<const T*>(op.w);
  const T* b = static_cast<const T*>(op.b);
  const auto cols = static_cast<float>(op.cols);
  for (int64_t row = begin; row < end_row; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    float* y = op.y + row * op.cols;
    VF32 sum = hn::Zero(df);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end)
                             HWY_ATTR { sum = hn::Add(sum, load_as(d, x + i, end)); });
    const float mean = hn::GetLane(hn::SumOfLanes(df, sum)) / cols;
    VF32 squares = hn::Zero(df);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 distance = within(d, hn::Sub(load_as(d, x + i, end), hn::Set(d, mean)), end);
      squares = hn::MulAdd(distance, distance, squares);
    });
    const float variance = hn::GetLane(hn::SumOfLanes(df, squares)) / cols;
    const float rstd = 1.0f / std::sqrt(variance + op.eps);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 distance = hn::Sub(load_as(d, x + i, end), hn::Set(d, mean));
      const VF32 normed = hn::Mul(distance, hn::Set(d, rstd));
      store_as(d, hn::MulAdd(normed, load_as(d, w + i, end), load_as(d, b + i, end)), y + i, end);
    });
    if (op.mean) op.mean[row] = mean;
    if (op.rstd) op.rstd[row] = rstd;
  }
}

// Outputs for the sums over some rows; null: not computed.
struct Shares {
  float* dw = nullptr;
  float* db = nullptr;
};

template <typename T>
void backward_rows_of(const LayerNormBackward& op, int64_t begin, int64_t end_row,
                      const Shares& shares) {
  const F32 df;
  const T* w = static_cast<const T*>(op.w);
  const auto cols = static_cast<float>(op.cols);
  for (int64_t row = begin; row < end_row; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    const float* dy = op.dy + row * op.cols;
    const T* dres = op.dres ? static_cast<const T*>(op.dres) + row * op.cols : nullptr;
    T* dx = static_cast<T*>(op.dx) + row * op.cols;
    const float mean = op.mean[row];
    const float rstd = op.rstd[row];
    const auto normed = [&](F32 d, int64_t i, auto end) HWY_ATTR {
      return hn::Mul(hn::Sub(load_as(d, x + i, end), hn::Set(d, mean)), hn::Set(d, rstd));
    };
    VF32 sum_g = hn::Zero(df);
    VF32 sum_gn = hn::Zero(df);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 n = normed(d, i, end);
      const VF32 out = load_as(d, dy + i, end);  // zero beyond the end, and so is g
      const VF32 g = hn::Mul(out, load_as(d, w + i, end));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, n, sum_gn);
      if (shares.dw) {
        float* dw = shares.dw + i;
        store_as(d, hn::MulAdd(out, n, load_as(d, dw, end)), dw, end);
      }
      if (shares.db) {
        float* db = shares.db + i;
        store_as(d, hn::Add(out, load_as(d, db, end)), db, end);
      }
    });
    if (!op.dx) continue;
    const float mean_g = hn::GetLane(hn::SumOfLanes(df, sum_g)) / cols;
    const float mean_gn = hn::GetLane(hn::SumOfLanes(df, sum_gn)) / cols;
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 g = hn::Mul(load_as(d, dy + i, end), load_as(d, w + i, end));
      const VF32 centered = hn::Sub(g, hn::Set(d, mean_g));
      const VF32 change = hn::Mul(hn::NegMulAdd(normed(d, i, end), hn::Set(d, mean_gn), centered),
                                  hn::Set(d, rstd));
      const VF32 residual = dres ? load_as(d, dres + i, end) : hn::Zero(d);
      store_as(d, hn::Add(residual, change), dx + i, end);
    });
  }
}

void forward_rows(const LayerNormForward& op, int64_t begin, int64_t end) {
  with_weight_type(op.dtype, [&](auto type) { forward_rows_of<decltype(type)>(op, begin, end); });
}

void backward_rows(const LayerNormBackward& op, int64_t begin, int64_t end, float* dw, float* db) {
  const Shares shares{dw, db};
  with_weight_type(op.dtype,
                   [&](auto type) { backward_rows_of<decltype(type)>(op, begin, end, shares); });
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

void layer_norm_forward(const LayerNormForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_weight_type(op.dtype));
  parallel_blocks(op.rows, kShareRows, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(op, begin, end);
  });
}

void layer_norm_backward(const LayerNormBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_weight_type(op.dtype));
  STRATA_CHECK((!op.dw && !op.db) || op.workspace.bytes >= workspace_bytes(op, 1));
  float* shares = reinterpret_cast<float*>(op.workspace.data);
  const int64_t blocks = ceil_div(op.rows, kShareRows);
  parallel_for(blocks, [&](int64_t index, int) {
    float* dw = op.dw ? shares + index * op.cols : nullptr;
    float* db = op.db ? shares + (blocks + index) * op.cols : nullptr;
    if (dw) std::fill_n(dw, op.cols, 0.0f);
    if (db) std::fill_n(db, op.cols, 0.0f);
    HWY_DYNAMIC_DISPATCH(backward_rows)
    (op, index * kShareRows, std::min(op.rows, (index + 1) * kShareRows), dw, db);
  });
  if (op.dw) add_shares(shares, blocks, op.cols, op.accumulate, op.dw);
  if (op.db) add_shares(shares + blocks * op.cols, blocks, op.cols, op.accumulate, op.db);
}

}  // namespace cpu

}  // namespace strata::kernels
#endif  // HWY_ONCE

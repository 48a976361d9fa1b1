// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/column_sums.h"
#include "kernels/norm.h"

// RMSNorm. A block takes one group of one row; the gradient of w has its own pass, before dx, which
// may lie over dy.
namespace strata::kernels::cuda {

// The place of a group of a row.
struct Groups {
  int64_t groups, cols, stride;
  STRATA_HOST_DEVICE int64_t operator()(int64_t index) const {
    return index / groups * stride + index % groups * cols;
  }
};
template <typename Op>
Groups groups_of(const Op& op, int64_t stride) {
  return {op.groups, op.cols, stride_or(stride, op.groups * op.cols)};
}

// The sums of rows whose columns several ranks have.
struct RowSums {
  float* own;  // null: the op is all of the norm
  const float* all;
  float cols;  // of all ranks

  // The sum over a row: of all ranks, or of what the block's threads add up.
  template <typename Block, typename Add>
  STRATA_HOST_DEVICE float of(Block& block, int64_t row, const Add& add) const {
    if (all != nullptr) return all[row];
    const float sum = block.reduce(add, Sum());
    if (own != nullptr) {
      block.each([&](int thread) {
        if (thread == 0) own[row] = sum;
      });
    }
    return sum;
  }
};
template <typename Op>
RowSums row_sums_of(const Op& op) {
  return {op.own_sums, op.all_sums, static_cast<float>(mean_cols(op))};
}

template <typename X, typename W, typename Y, bool kWhole>
struct RmsNormForwardGroup {
  const typename X::Stored* x;
  const typename W::Stored* w;
  typename Y::Stored* y;
  float* rstd;
  RowSums sums;
  Groups x_at, y_at;
  float offset, eps;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t cols = x_at.cols;
    const auto* from = x + x_at(index);
    const float squares = sums.of(block, index, [&](int thread) {
      float sum = 0.0f;
      each_pack(thread, block.threads, cols, [&](int64_t col) {
        const Four value = load_four<X, kWhole>(from + col, cols - col);
        for (int i = 0; i < kPack; ++i) sum += value.at[i] * value.at[i];
      });
      return sum;
    });
    if (sums.own != nullptr) return;
    auto* to = y + y_at(index);
    const float factor = 1.0f / sqrtf(squares / sums.cols + eps);
    block.each([&](int thread) {
      each_pack(thread, block.threads, cols, [&](int64_t col) {
        Four value = load_four<X, kWhole>(from + col, cols - col);
        const Four weight = load_four<W, kWhole>(w + col, cols - col);
        for (int i = 0; i < kPack; ++i) value.at[i] *= factor * (offset + weight.at[i]);
        store_four<Y, kWhole>(to + col, cols - col, value);
      });
      if (thread == 0 && rstd != nullptr) rstd[index] = factor;
    });
  }
};

template <typename X, typename W, typename Y, bool kWhole>
struct RmsNormBackwardGroup {
  const typename X::Stored* x;
  const typename W::Stored* w;
  const float* rstd;
  const typename Y::Stored* dy;
  const typename X::Stored* dres;
  typename X::Stored* dx;
  RowSums sums;
  Groups x_at, dy_at, dx_at;
  float offset;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t cols = x_at.cols;
    const auto* x_row = x + x_at(index);
    const auto* dy_row = dy + dy_at(index);
    const float factor = rstd[index];
    // g = dy * (offset + w) and n = x * rstd.
    const auto load_g = [&](int64_t col) {
      Four g = load_four<Y, kWhole>(dy_row + col, cols - col);
      const Four weight = load_four<W, kWhole>(w + col, cols - col);
      for (int i = 0; i < kPack; ++i) g.at[i] *= offset + weight.at[i];
      return g;
    };
    const auto load_n = [&](int64_t col) {
      Four n = load_four<X, kWhole>(x_row + col, cols - col);
      for (int i = 0; i < kPack; ++i) n.at[i] *= factor;
      return n;
    };
    const float dot = sums.of(block, index, [&](int thread) {
      float sum = 0.0f;
      each_pack(thread, block.threads, cols, [&](int64_t col) {
        const Four g = load_g(col), n = load_n(col);
        for (int i = 0; i < kPack; ++i) sum += g.at[i] * n.at[i];
      });
      return sum;
    });
    if (sums.own != nullptr) return;
    const float mean = dot / sums.cols;
    block.each([&](int thread) {
      each_pack(thread, block.threads, cols, [&](int64_t col) {
        const Four g = load_g(col), n = load_n(col);
        const int64_t at = dx_at(index) + col;
        Four change = {};
        if (dres != nullptr) change = load_four<X, kWhole>(dres + at, cols - col);
        for (int i = 0; i < kPack; ++i) change.at[i] += factor * (g.at[i] - n.at[i] * mean);
        store_four<X, kWhole>(dx + at, cols - col, change);
      });
    });
  }
};

// dy * n of all groups of a row.
template <typename X, typename Y, bool kWhole>
struct RmsNormWeightTerm {
  const typename X::Stored* x;
  const typename Y::Stored* dy;
  const float* rstd;
  Groups x_at, dy_at;
  STRATA_HOST_DEVICE void add(int64_t row, int64_t col, Four& sum) const {
    const int64_t left = x_at.cols - col;
    for (int64_t index = row * x_at.groups; index < (row + 1) * x_at.groups; ++index) {
      const Four value = load_four<X, kWhole>(x + x_at(index) + col, left);
      const Four gradient = load_four<Y, kWhole>(dy + dy_at(index) + col, left);
      for (int i = 0; i < kPack; ++i) sum.at[i] += gradient.at[i] * (value.at[i] * rstd[index]);
    }
  }
};

// Calls body with the types of x, w and the interior.
template <typename Op, typename Body>
void with_norm_types(const Op& op, DType interior, const Body& body) {
  STRATA_CHECK(is_rms_norm(op));
  with_both(op.dtype, interior, [&](auto w, auto y) { op.inside ? body(y, w, y) : body(w, w, y); });
}

template <typename On>
void rms_norm_forward(On& on, const RmsNormForward& op) {
  with_norm_types(op, op.y.dtype, [&](auto x, auto w, auto y) {
    using X = decltype(x);
    using W = decltype(w);
    using Y = decltype(y);
    const auto* from = elements<X>(op.x);
    const auto* weight = elements<W>(op.w);
    auto* to = elements<Y>(op.y.data);
    const Groups x_at = groups_of(op, op.x_stride), y_at = groups_of(op, op.y_stride);
    const bool whole = op.cols % kPack == 0 && is_packed(from, x_at.stride) && is_packed(weight) &&
                       is_packed(to, y_at.stride);
    with_flag(whole, [&](auto flag) {
      on.blocks(op.rows * op.groups, row_threads(op.cols),
                RmsNormForwardGroup<X, W, Y, decltype(flag)::value>{
                    from, weight, to, op.rstd, row_sums_of(op), x_at, y_at, op.offset, op.eps});
    });
  });
}

template <typename On>
void rms_norm_backward(On& on, const RmsNormBackward& op) {
  STRATA_CHECK(!op.dw || op.workspace.bytes >= shares_bytes(op.rows, op.cols));
  with_norm_types(op, op.dy.dtype, [&](auto x_kind, auto w_kind, auto y_kind) {
    using X = decltype(x_kind);
    using W = decltype(w_kind);
    using Y = decltype(y_kind);
    const auto* x = elements<X>(op.x);
    const auto* w = elements<W>(op.w);
    const auto* dy = elements<Y>(op.dy.data);
    const auto* dres = elements<X>(op.dres);
    auto* dx = elements<X>(op.dx);
    const Groups x_at = groups_of(op, op.x_stride), dy_at = groups_of(op, op.dy_stride);
    const Groups dx_at = groups_of(op, op.dx_stride);
    const bool whole = op.cols % kPack == 0 && is_packed(x, x_at.stride) && is_packed(w) &&
                       is_packed(dy, dy_at.stride) && is_packed(dres, dx_at.stride) &&
                       is_packed(dx, dx_at.stride);
    with_flag(whole, [&](auto flag) {
      constexpr bool kWhole = decltype(flag)::value;
      if (op.dw) {
        sum_columns(on, RmsNormWeightTerm<X, Y, kWhole>{x, dy, op.rstd, x_at, dy_at}, op.rows,
                    op.cols, reinterpret_cast<float*>(op.workspace.data), op.accumulate, op.dw);
      }
      if (!op.dx && !op.own_sums) return;
      on.blocks(op.rows * op.groups, row_threads(op.cols),
                RmsNormBackwardGroup<X, W, Y, kWhole>{x, w, op.rstd, dy, dres, dx, row_sums_of(op),
                                                      x_at, dy_at, dx_at, op.offset});
    });
  });
}

}  // namespace strata::kernels::cuda

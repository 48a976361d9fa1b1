// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/column_sums.h"
#include "kernels/norm.h"

// RMSNorm. A block takes one group of one row. The gradient of w has its own pass, before dx, which
// may lie over dy; or, of many long rows, blocks of kShareRows rows compute both.
namespace strata::kernels::cuda {

// The place of a group of a row.
struct Groups {
  int64_t groups, cols, stride;
  STRATA_HOST_DEVICE int64_t operator()(int64_t index) const {
    if (groups == 1) return index * stride;
    const auto at = static_cast<uint32_t>(index), count = static_cast<uint32_t>(groups);
    return at / count * stride + at % count * cols;  // in 32 bits, which are quick to divide
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

template <typename X, typename W, typename Y, bool kWhole, int kPacks>
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
    struct Loaded {
      Pack<typename X::Stored> x;
      Pack<typename W::Stored> w;
    };
    const auto load = [&](int64_t col) -> Loaded {
      return {load_pack<kWhole>(from + col, cols - col), load_pack<kWhole>(w + col, cols - col)};
    };
    auto row = kept_row<kPacks>(block, cols, load);
    const float squares = sums.of(block, index, [&](int thread) {
      float sum = 0.0f;
      row.each(thread, [&](int64_t, const Loaded& loaded) {
        const Four value = unpack<X>(loaded.x);
        for (int i = 0; i < kPack; ++i) sum += value.at[i] * value.at[i];
      });
      return sum;
    });
    if (sums.own != nullptr) return;
    auto* to = y + y_at(index);
    const float factor = 1.0f / sqrtf(squares / sums.cols + eps);
    block.each([&](int thread) {
      row.each(thread, [&](int64_t col, const Loaded& loaded) {
        Four value = unpack<X>(loaded.x);
        const Four weight = unpack<W>(loaded.w);
        for (int i = 0; i < kPack; ++i) value.at[i] *= factor * (offset + weight.at[i]);
        store_four<Y, kWhole>(to + col, cols - col, value);
      });
      if (thread == 0 && rstd != nullptr) rstd[index] = factor;
    });
  }
};

// sum += dy * (x * rstd): the terms of dw.
STRATA_HOST_DEVICE inline void add_norm_term(const Four& dy, const Four& x, float rstd, Four& sum) {
  for (int i = 0; i < kPack; ++i) sum.at[i] += dy.at[i] * (x.at[i] * rstd);
}

template <typename X, typename W, typename Y, bool kWhole, int kPacks>
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
    run(block, index, [](auto&) {});
  }

  struct Loaded {
    Pack<typename X::Stored> x, dres;
    Pack<typename W::Stored> w;
    Pack<typename Y::Stored> dy;
  };

  // Calls then(row) at the end, with the row as it was loaded.
  template <typename Block, typename Then>
  STRATA_HOST_DEVICE void run(Block& block, int64_t index, const Then& then) const {
    const int64_t cols = x_at.cols;
    const auto* x_row = x + x_at(index);
    const auto* dy_row = dy + dy_at(index);
    const int64_t dx_row = dx_at(index);
    const float factor = rstd[index];
    const auto load = [&](int64_t col) {
      const int64_t left = cols - col;
      Loaded loaded = {};
      loaded.x = load_pack<kWhole>(x_row + col, left);
      loaded.dy = load_pack<kWhole>(dy_row + col, left);
      loaded.w = load_pack<kWhole>(w + col, left);
      if (dres != nullptr) loaded.dres = load_pack<kWhole>(dres + dx_row + col, left);
      return loaded;
    };
    // g = dy * (offset + w) and n = x * rstd.
    const auto g_of = [&](const Loaded& loaded) {
      Four g = unpack<Y>(loaded.dy);
      const Four weight = unpack<W>(loaded.w);
      for (int i = 0; i < kPack; ++i) g.at[i] *= offset + weight.at[i];
      return g;
    };
    const auto n_of = [&](const Loaded& loaded) {
      Four n = unpack<X>(loaded.x);
      for (int i = 0; i < kPack; ++i) n.at[i] *= factor;
      return n;
    };
    auto row = kept_row<kPacks>(block, cols, load);
    const float dot = sums.of(block, index, [&](int thread) {
      float sum = 0.0f;
      row.each(thread, [&](int64_t, const Loaded& loaded) {
        const Four g = g_of(loaded), n = n_of(loaded);
        for (int i = 0; i < kPack; ++i) sum += g.at[i] * n.at[i];
      });
      return sum;
    });
    if (sums.own != nullptr) return;
    const float mean = dot / sums.cols;
    block.each([&](int thread) {
      row.each(thread, [&](int64_t col, const Loaded& loaded) {
        const Four g = g_of(loaded), n = n_of(loaded);
        Four change = unpack<X>(loaded.dres);
        for (int i = 0; i < kPack; ++i) change.at[i] += factor * (g.at[i] - n.at[i] * mean);
        store_four<X, kWhole>(dx + dx_row + col, cols - col, change);
      });
    });
    then(row);
  }
};

// dx of kShareRows rows, and their share of the sum of dy * n over all rows (column_sums.h). The
// threads of a block keep all of a row.
template <typename X, typename W, typename Y, bool kWhole>
struct RmsNormBackwardShare {
  using OfRow = RmsNormBackwardGroup<X, W, Y, kWhole, kKept>;
  OfRow of_row;
  int64_t rows;
  float* shares;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t share) const {
    const int64_t cols = of_row.x_at.cols, first = share * kShareRows;
    const int64_t end = rows < first + kShareRows ? rows : first + kShareRows;
    auto sums = block.template keep<Four, kKept>();
    for (int64_t index = first; index < end; ++index) {
      const float factor = of_row.rstd[index];
      of_row.run(block, index, [&](auto& row) {
        block.each_alone([&](int thread) {
          Four* sum = sums.of(thread);
          row.kept(thread, [&](int j, int64_t, const typename OfRow::Loaded& loaded) {
            add_norm_term(unpack<Y>(loaded.dy), unpack<X>(loaded.x), factor, sum[j]);
          });
        });
      });
    }
    block.each_alone([&](int thread) {
      const Four* sum = sums.of(thread);
      each_kept<kKept>(thread, block.threads, cols, [&](int j, int64_t col) {
        store_pack<false>(shares + share * cols + col, cols - col, sum[j]);
      });
    });
  }
};

// dy * n of a group of a row.
template <typename X, typename Y, bool kWhole>
struct RmsNormWeightTerm {
  const typename X::Stored* x;
  const typename Y::Stored* dy;
  const float* rstd;
  Groups x_at, dy_at;
  struct Loaded {
    Pack<typename X::Stored> x;
    Pack<typename Y::Stored> dy;
    float rstd;
  };
  STRATA_HOST_DEVICE Loaded load(int64_t index, int64_t col) const {
    const int64_t left = x_at.cols - col;
    return {load_pack<kWhole>(x + x_at(index) + col, left),
            load_pack<kWhole>(dy + dy_at(index) + col, left), rstd[index]};
  }
  STRATA_HOST_DEVICE static void add(const Loaded& loaded, Four& sum) {
    add_norm_term(unpack<Y>(loaded.dy), unpack<X>(loaded.x), loaded.rstd, sum);
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
      with_kept(op.cols, [&](auto packs) {
        on.blocks(op.rows * op.groups, row_threads(op.cols),
                  RmsNormForwardGroup<X, W, Y, decltype(flag)::value, decltype(packs)::value>{
                      from, weight, to, op.rstd, row_sums_of(op), x_at, y_at, op.offset, op.eps});
      });
    });
  });
}

// Whether dx and dw are computed together, which reads x and dy once: where the blocks of
// kShareRows rows are enough to keep as many loads in flight as a GPU needs.
inline bool takes_shares(const RmsNormBackward& op) {
  constexpr int64_t kElementsMin = int64_t{1} << 24;
  return op.dx != nullptr && op.dw != nullptr && op.own_sums == nullptr && op.groups == 1 &&
         is_kept(op.cols) && op.rows * op.cols >= kElementsMin;
}

template <typename On>
void rms_norm_backward(On& on, const RmsNormBackward& op) {
  STRATA_CHECK(!op.dw || op.workspace.bytes >= shares_bytes(op.rows * op.groups, op.cols));
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
    auto* shares = reinterpret_cast<float*>(op.workspace.data);
    const int threads = row_threads(op.cols);
    with_flag(whole, [&](auto flag) {
      constexpr bool kWhole = decltype(flag)::value;
      const auto of_rows = [&](auto packs) {
        return RmsNormBackwardGroup<X, W, Y, kWhole, decltype(packs)::value>{
            x, w, op.rstd, dy, dres, dx, row_sums_of(op), x_at, dy_at, dx_at, op.offset};
      };
      const int64_t rows = op.rows * op.groups;
      if (takes_shares(op)) {
        const int64_t count = ceil_div(rows, kShareRows);
        const auto of_row = of_rows(std::integral_constant<int, kKept>());
        on.blocks(count, threads, RmsNormBackwardShare<X, W, Y, kWhole>{of_row, rows, shares});
        add_shares(on, shares, count, op.cols, op.accumulate, op.dw);
        return;
      }
      if (op.dw) {
        sum_columns(on, RmsNormWeightTerm<X, Y, kWhole>{x, dy, op.rstd, x_at, dy_at}, rows, op.cols,
                    shares, op.accumulate, op.dw);
      }
      if (!op.dx && !op.own_sums) return;
      with_kept(op.cols, [&](auto packs) { on.blocks(rows, threads, of_rows(packs)); });
    });
  });
}

}  // namespace strata::kernels::cuda

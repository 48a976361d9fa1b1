// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/column_sums.h"
#include "kernels/layer_norm.h"

// LayerNorm. A block takes one row; the gradients of w and b have their own passes.
namespace strata::kernels::cuda {

template <typename T, typename Y, bool kWhole>
struct LayerNormForwardRow {
  const typename T::Stored* x;
  const typename T::Stored* w;
  const typename T::Stored* b;
  typename Y::Stored* y;
  float* mean;
  float* rstd;
  int64_t cols;
  float eps;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    const auto* from = x + row * cols;
    struct Loaded {
      Pack<typename T::Stored> x, w, b;
    };
    const auto load = [&](int64_t col) -> Loaded {
      const int64_t left = cols - col;
      return {load_pack<kWhole>(from + col, left), load_pack<kWhole>(w + col, left),
              load_pack<kWhole>(b + col, left)};
    };
    auto kept = kept_row<kKept>(block, cols, load);
    const auto sum_of = [&](const auto& term) {
      return block.reduce(
          [&](int thread) {
            float sum = 0.0f;
            kept.each(thread, [&](int64_t col, const Loaded& loaded) {
              const Four value = unpack<T>(loaded.x);
              for (int i = 0; i < kPack && col + i < cols; ++i) sum += term(value.at[i]);
            });
            return sum;
          },
          Sum());
    };
    const float average = sum_of([](float value) { return value; }) / static_cast<float>(cols);
    const float squares =
        sum_of([=](float value) { return (value - average) * (value - average); });
    const float factor = 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
    block.each([&](int thread) {
      kept.each(thread, [&](int64_t col, const Loaded& loaded) {
        Four value = unpack<T>(loaded.x);
        const Four weight = unpack<T>(loaded.w), bias = unpack<T>(loaded.b);
        for (int i = 0; i < kPack; ++i) {
          value.at[i] = (value.at[i] - average) * factor * weight.at[i] + bias.at[i];
        }
        store_four<Y, kWhole>(y + row * cols + col, cols - col, value);
      });
      if (thread == 0 && mean != nullptr) mean[row] = average;
      if (thread == 0 && rstd != nullptr) rstd[row] = factor;
    });
  }
};

template <typename T, typename Y, bool kWhole>
struct LayerNormBackwardRow {
  const typename T::Stored* x;
  const typename T::Stored* w;
  const float* mean;
  const float* rstd;
  const typename Y::Stored* dy;
  const typename T::Stored* dres;
  typename T::Stored* dx;
  int64_t cols;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    const float average = mean[row], factor = rstd[row];
    const int64_t begin = row * cols;
    struct Loaded {
      Pack<typename T::Stored> x, w, dres;
      Pack<typename Y::Stored> dy;
    };
    const auto load = [&](int64_t col) {
      const int64_t left = cols - col;
      Loaded loaded = {};
      loaded.x = load_pack<kWhole>(x + begin + col, left);
      loaded.dy = load_pack<kWhole>(dy + begin + col, left);
      loaded.w = load_pack<kWhole>(w + col, left);
      if (dres != nullptr) loaded.dres = load_pack<kWhole>(dres + begin + col, left);
      return loaded;
    };
    auto kept = kept_row<kKept>(block, cols, load);
    const auto g_of = [&](const Loaded& loaded) {
      Four g = unpack<Y>(loaded.dy);
      const Four weight = unpack<T>(loaded.w);
      for (int i = 0; i < kPack; ++i) g.at[i] *= weight.at[i];
      return g;
    };
    const auto n_of = [&](const Loaded& loaded) {
      Four n = unpack<T>(loaded.x);
      for (int i = 0; i < kPack; ++i) n.at[i] = (n.at[i] - average) * factor;
      return n;
    };
    // Sums over the row of g, and of g * n.
    const auto sum_of = [&](const auto& term) {
      return block.reduce(
          [&](int thread) {
            float sum = 0.0f;
            kept.each(thread, [&](int64_t, const Loaded& loaded) {
              const Four g = g_of(loaded), n = n_of(loaded);
              for (int i = 0; i < kPack; ++i) sum += term(g.at[i], n.at[i]);  // g is 0 beyond
            });
            return sum;
          },
          Sum());
    };
    const auto count = static_cast<float>(cols);
    const float mean_g = sum_of([](float g, float) { return g; }) / count;
    const float mean_gn = sum_of([](float g, float n) { return g * n; }) / count;
    block.each([&](int thread) {
      kept.each(thread, [&](int64_t col, const Loaded& loaded) {
        const Four g = g_of(loaded), n = n_of(loaded);
        Four change = unpack<T>(loaded.dres);
        for (int i = 0; i < kPack; ++i) {
          change.at[i] += factor * (g.at[i] - mean_g - n.at[i] * mean_gn);
        }
        store_four<T, kWhole>(dx + begin + col, cols - col, change);
      });
    });
  }
};

// dy * n for w (kNormed), dy for b.
template <typename T, typename Y, bool kNormed, bool kWhole>
struct LayerNormTerm {
  const typename T::Stored* x;
  const float* mean;
  const float* rstd;
  const typename Y::Stored* dy;
  int64_t cols;
  struct Loaded {
    Pack<typename Y::Stored> dy;
    Pack<typename T::Stored> x;
    float mean, rstd;
  };
  STRATA_HOST_DEVICE Loaded load(int64_t row, int64_t col) const {
    const int64_t at = row * cols + col, left = cols - col;
    Loaded loaded = {};
    loaded.dy = load_pack<kWhole>(dy + at, left);
    if constexpr (kNormed) {
      loaded.x = load_pack<kWhole>(x + at, left);
      loaded.mean = mean[row];
      loaded.rstd = rstd[row];
    }
    return loaded;
  }
  STRATA_HOST_DEVICE static void add(const Loaded& loaded, Four& sum) {
    const Four gradient = unpack<Y>(loaded.dy);
    if constexpr (kNormed) {
      const Four value = unpack<T>(loaded.x);
      for (int i = 0; i < kPack; ++i) {
        sum.at[i] += gradient.at[i] * ((value.at[i] - loaded.mean) * loaded.rstd);
      }
    } else {
      sum = SumFour()(sum, gradient);
    }
  }
};

template <typename On>
void layer_norm_forward(On& on, const LayerNormForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  with_both(op.dtype, op.y.dtype, [&](auto t, auto y_kind) {
    using T = decltype(t);
    using Y = decltype(y_kind);
    const auto* x = elements<T>(op.x);
    const auto* w = elements<T>(op.w);
    const auto* b = elements<T>(op.b);
    auto* y = elements<Y>(op.y.data);
    const bool whole =
        op.cols % kPack == 0 && is_packed(x) && is_packed(w) && is_packed(b) && is_packed(y);
    with_flag(whole, [&](auto flag) {
      on.blocks(op.rows, row_threads(op.cols),
                LayerNormForwardRow<T, Y, decltype(flag)::value>{x, w, b, y, op.mean, op.rstd,
                                                                 op.cols, op.eps});
    });
  });
}

template <typename On>
void layer_norm_backward(On& on, const LayerNormBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  STRATA_CHECK((!op.dw && !op.db) || op.workspace.bytes >= shares_bytes(op.rows, op.cols));
  float* shares = reinterpret_cast<float*>(op.workspace.data);
  with_both(op.dtype, op.dy.dtype, [&](auto t, auto y_kind) {
    using T = decltype(t);
    using Y = decltype(y_kind);
    const auto* x = elements<T>(op.x);
    const auto* w = elements<T>(op.w);
    const auto* dy = elements<Y>(op.dy.data);
    const auto* dres = elements<T>(op.dres);
    auto* dx = elements<T>(op.dx);
    const bool whole = op.cols % kPack == 0 && is_packed(x) && is_packed(w) && is_packed(dy) &&
                       is_packed(dres) && is_packed(dx);
    with_flag(whole, [&](auto flag) {
      constexpr bool kWhole = decltype(flag)::value;
      const auto sum = [&](const auto& term, float* to) {
        if (to) sum_columns(on, term, op.rows, op.cols, shares, op.accumulate, to);
      };
      sum(LayerNormTerm<T, Y, true, kWhole>{x, op.mean, op.rstd, dy, op.cols}, op.dw);
      sum(LayerNormTerm<T, Y, false, kWhole>{x, op.mean, op.rstd, dy, op.cols}, op.db);
      if (!op.dx) return;
      on.blocks(op.rows, row_threads(op.cols),
                LayerNormBackwardRow<T, Y, kWhole>{x, w, op.mean, op.rstd, dy, dres, dx, op.cols});
    });
  });
}

}  // namespace strata::kernels::cuda

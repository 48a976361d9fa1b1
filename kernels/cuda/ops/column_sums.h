// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/sizes.h"

// Sums over rows, in an order that depends only on shapes: blocks of kShareRows rows are summed
// into shares, rows ascending, and a tree adds the shares.
//
//   sum[c] (+)= sum_r term(r, c)            c < cols, r < rows
//   shares  [ceil(rows / kShareRows), cols] f32  scratch
namespace strata::kernels::cuda {

template <typename Term>
struct SumShares {
  Term term;
  int64_t rows, cols, tiles;
  float* shares;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    constexpr int kLoads = 4;  // in flight together
    const int64_t share = index / tiles;
    const int64_t end = rows < (share + 1) * kShareRows ? rows : (share + 1) * kShareRows;
    block.each([&](int thread) {
      const int64_t col = (index % tiles * block.threads + thread) * kPack;
      if (col >= cols) return;
      Four sum = {};
      typename Term::Loaded loaded[kLoads];
      for (int64_t row = share * kShareRows; row < end; row += kLoads) {
        STRATA_UNROLL
        for (int j = 0; j < kLoads; ++j) {
          if (row + j < end) loaded[j] = term.load(row + j, col);
        }
        STRATA_UNROLL
        for (int j = 0; j < kLoads; ++j) {
          if (row + j < end) term.add(loaded[j], sum);
        }
      }
      store_pack<false>(shares + share * cols + col, cols - col, sum);
    });
  }
};

struct AddShares {
  const float* shares;
  int64_t count, cols;
  bool accumulate;
  float* sum;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t col = index * kPack, left = cols - col;
    const Four total = block.reduce(
        [&](int thread) {
          Four part = {};
          STRATA_UNROLL_4
          for (int64_t i = thread; i < count; i += block.threads) {
            part = SumFour()(part, load_pack<false>(shares + i * cols + col, left));
          }
          return part;
        },
        SumFour());
    block.each([&](int thread) {
      if (thread >= kPack || thread >= left) return;
      const float before = accumulate ? sum[col + thread] : 0.0f;
      sum[col + thread] = before + total.at[thread];
    });
  }
};

template <typename On>
void add_shares(On& on, const float* shares, int64_t count, int64_t cols, bool accumulate,
                float* sum) {
  on.blocks(ceil_div(cols, kPack), count < 64 ? 32 : 128,
            AddShares{shares, count, cols, accumulate, sum});
}

// `term.load(row, col)` loads what makes the terms of columns [col, col + 4) of a row, and
// `term.add(loaded, four)` adds them.
template <typename On, typename Term>
void sum_columns(On& on, const Term& term, int64_t rows, int64_t cols, float* shares,
                 bool accumulate, float* sum) {
  const int threads = row_threads(cols);
  const int64_t tiles = ceil_div(cols, int64_t{kPack} * threads);
  const int64_t count = ceil_div(rows, kShareRows);
  on.blocks(count * tiles, threads, SumShares<Term>{term, rows, cols, tiles, shares});
  add_shares(on, shares, count, cols, accumulate, sum);
}

}  // namespace strata::kernels::cuda

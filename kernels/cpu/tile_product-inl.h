// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set (see foreach_target.h), so the guard is Highway's.
#if defined(STRATA_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_TILE_PRODUCT_INL_H_
#undef STRATA_TILE_PRODUCT_INL_H_
#else
#define STRATA_TILE_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// c[m, n] (+)= a[m, k] * b[k, n] for operands in cache. n is a multiple of 16. Element (i, p) of a
// is at a[i*a_row + p*a_col], so a may be transposed. Each element of c is one chain of fused
// multiply-adds over ascending k. When a is triangular, row r is zero outside of columns [r -
// before, r + after], and most of the zeros are skipped.
struct TileProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t a_col = 0;
  const float* b = nullptr;
  int64_t b_row = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool accumulate = false;
  int64_t before = int64_t{1} << 40;
  int64_t after = int64_t{1} << 40;
};

// The accumulators of a block use most registers: 24 of 32 with AVX-512, 12 of 16 otherwise.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

template <int kRows, int kVectors>
HWY_INLINE void block_product(const TileProduct& t, int64_t row, int64_t col) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT a = t.a + row * t.a_row;
  const float* HWY_RESTRICT b = t.b + col;
  float* HWY_RESTRICT c = t.c + row * t.c_row + col;
  VF32 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = t.accumulate ? hn::LoadU(d, c + r * t.c_row + v * lanes) : hn::Zero(d);
    }
  }
  const int64_t last = std::min(t.k, row + kRows + t.after);
  for (int64_t p = std::max<int64_t>(0, row - t.before); p < last; ++p) {
    VF32 right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + p * t.b_row + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF32 left = hn::Set(d, a[r * t.a_row + p * t.a_col]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * t.c_row + v * lanes);
  }
}

template <int kVectors>
HWY_NOINLINE void rows_product(const TileProduct& t, int64_t col) {
  int64_t row = 0;
  for (; row + kBlockRows <= t.m; row += kBlockRows)
    block_product<kBlockRows, kVectors>(t, row, col);
  switch (t.m - row) {
    case 5:
      return block_product<5, kVectors>(t, row, col);
    case 4:
      return block_product<4, kVectors>(t, row, col);
    case 3:
      return block_product<3, kVectors>(t, row, col);
    case 2:
      return block_product<2, kVectors>(t, row, col);
    case 1:
      return block_product<1, kVectors>(t, row, col);
    default:
      return;
  }
}

HWY_INLINE void tile_product(const TileProduct& t) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t col = 0;
  for (; col + kBlockVectors * lanes <= t.n; col += kBlockVectors * lanes) {
    rows_product<kBlockVectors>(t, col);
  }
  const int64_t rest = (t.n - col) / lanes;
  if (rest == 3) rows_product<3>(t, col);
  if (rest == 2) rows_product<2>(t, col);
  if (rest == 1) rows_product<1>(t, col);
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set

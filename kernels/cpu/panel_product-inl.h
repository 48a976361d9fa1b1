// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set (see foreach_target.h), so the guard is Highway's.
#if defined(STRATA_PANEL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_PANEL_PRODUCT_INL_H_
#undef STRATA_PANEL_PRODUCT_INL_H_
#else
#define STRATA_PANEL_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/panels.h"
#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// Prefetches a cache line; kWrite: for writing.
template <bool kWrite>
HWY_INLINE void ask(const char* at) {
#if HWY_ARCH_X86
  // Written as assembly, because the compiler emits prefetchw only for targets that guarantee it.
  if constexpr (kWrite) {
    asm volatile("prefetchw %0" ::"m"(*at));
  } else {
    asm volatile("prefetcht1 %0" ::"m"(*at));
  }
#else
  __builtin_prefetch(at, kWrite, 2);
#endif
}

// Cache lines to prefetch while a product runs: `rows` rows of `row_lines` lines. One line is
// prefetched every few steps, so that prefetches never fill the memory queue.
struct Lines {
  const char* at = nullptr;
  int64_t skip = 0;  // bytes from the end of a row to the next
  int64_t row_lines = 1;
  int64_t left = 0;
  int64_t in_row = 0;

  static Lines of(const void* first, int64_t stride_bytes, int64_t rows, int64_t row_bytes) {
    const int64_t row_lines = ceil_div(row_bytes, kLineBytes);
    return {static_cast<const char*>(first), stride_bytes - row_lines * kLineBytes, row_lines,
            rows * row_lines};
  }

  template <bool kWrite>
  HWY_INLINE void ask_for_one() {
    if (left <= 0) return;
    --left;
    ask<kWrite>(at);
    at += kLineBytes;
    if (++in_row < row_lines) return;
    in_row = 0;
    at += skip;
  }

  static constexpr int64_t kLineBytes = 64;
};

// c[rows, 16 * vectors] (+)= a[rows, depth] * b[depth, 16 * vectors] for at most kRegisterRows
// rows. Element (r, p) of a is at a[r * a_row + p], or at a[p * kRegisterRows + r] when a is
// packed. Each element of c is one chain of fused multiply-adds over ascending depth, which starts
// at zero and, with `add`, is added to the old value.
struct PanelProduct {
  int64_t rows = 0;
  int64_t depth = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  const float* b = nullptr;
  int64_t b_row = kPanelCols;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
};

template <int kRows, int kVectors, bool kPacked>
HWY_INLINE void multiply_step(const PanelProduct& t, int64_t p, VF32 (&sum)[kRows][kVectors]) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF32 right[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, t.b + p * t.b_row + v * lanes);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const VF32 left = hn::Set(d, kPacked ? t.a[p * kRegisterRows + r] : t.a[r * t.a_row + p]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
  }
}

// The lines that will be read and written next.
struct Ahead {
  Lines reads, writes;
};

template <int kRows, int kVectors, bool kPacked>
HWY_INLINE void panel_block(const PanelProduct& product, Ahead& to_come) {
  constexpr int64_t kSteps = 4;
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const PanelProduct t = product;
  Ahead ahead = to_come;
  VF32 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  int64_t p = 0;
  for (; p + kSteps <= t.depth; p += kSteps) {
    ahead.reads.ask_for_one<false>();
    ahead.writes.ask_for_one<true>();
#pragma GCC unroll 4
    for (int64_t step = 0; step < kSteps; ++step) {
      multiply_step<kRows, kVectors, kPacked>(t, p + step, sum);
    }
  }
  for (; p < t.depth; ++p) multiply_step<kRows, kVectors, kPacked>(t, p, sum);
  to_come = ahead;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* c = t.c + r * t.c_row + v * lanes;
      hn::StoreU(t.add ? hn::Add(hn::LoadU(d, c), sum[r][v]) : sum[r][v], d, c);
    }
  }
}

template <int kVectors, bool kPacked>
HWY_NOINLINE void panel_rows(const PanelProduct& t, Ahead& ahead) {
  switch (t.rows) {
    case 6:
      return panel_block<6, kVectors, kPacked>(t, ahead);
    case 5:
      return panel_block<5, kVectors, kPacked>(t, ahead);
    case 4:
      return panel_block<4, kVectors, kPacked>(t, ahead);
    case 3:
      return panel_block<3, kVectors, kPacked>(t, ahead);
    case 2:
      return panel_block<2, kVectors, kPacked>(t, ahead);
    default:
      return panel_block<1, kVectors, kPacked>(t, ahead);
  }
}

// `vectors` is at most 4.
template <bool kPacked>
HWY_INLINE void panel_product(const PanelProduct& t, int64_t vectors, Ahead& ahead) {
  switch (vectors) {
    case 4:
      return panel_rows<4, kPacked>(t, ahead);
    case 3:
      return panel_rows<3, kPacked>(t, ahead);
    case 2:
      return panel_rows<2, kPacked>(t, ahead);
    default:
      return panel_rows<1, kPacked>(t, ahead);
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set

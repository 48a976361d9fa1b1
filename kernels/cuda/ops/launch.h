// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/ops/element.h"

// How ops start kernels. An op is a function template over `On`, where it runs: a stream of a
// device (stream.cuh) or the calling thread (twin/host_launch.h). Both have
//
//   on.blocks(count, threads, body)   body(block, index) for each index in [0, count), by a block
//                                     of `threads` threads, a power of two up to kThreadsMax
//   on.grid(rows, cols, body)         body(row, col) for each row and each col = 0, 4, 8, ...
//   on.product(product)               product.h
//   on.fused(op)                      whether a library has issued the whole op instead
//
// A kernel is a struct with such an operator(). It is called in any order; within a queue, each
// call of `on` sees what the one before it has written. What a block offers:
//
//   block.threads                     how many
//   block.each(f)                     f(thread) for every thread; then all see what each wrote
//   block.each_alone(f)               the same for f that writes nothing which others see
//   block.reduce(f, combine)          f(thread) folded, the same result for all: in each warp as a
//                                     tree, for w = 16, 8, 4, 2, 1:
//                                     part[t] = combine(part[t], part[t + w]), t < w;
//                                     then the warps, ascending
//   block.scratch                     doubles, Body::kScratch for each thread; none without that
//   block.keep<T, kCount>()           T[kCount] for each thread, in registers: of(thread)
//
// A thread keeps nothing else from one call of the block to the next. So loops over blocks and
// threads on the host give the order of every sum, and the bits, of the device.
namespace strata::kernels::cuda {

inline constexpr int kThreadsMax = 512, kWarp = 32;
inline constexpr int kKept = 4;  // packs of a row in the registers of a thread, at most

// Threads for `cols` elements, of which each takes some packs: a power of two from a warp on. With
// several packs a thread has loads in flight while others are combined.
inline int threads_for(int64_t cols, int packs, int most) {
  int threads = kWarp;
  while (threads < most && int64_t{threads} * packs * kPack < cols) threads *= 2;
  return threads;
}
// Threads that share one row of `cols` elements.
inline int row_threads(int64_t cols) {
  return threads_for(cols, kKept, kThreadsMax);
}

template <typename Body>
constexpr int scratch_of() {
  if constexpr (requires { Body::kScratch; }) return Body::kScratch;
  return 0;
}

// Before a loop whose rounds, four of them or all, are to have their loads in flight together, or
// whose indices are to be constants.
#ifdef __CUDA_ARCH__
#define STRATA_UNROLL_4 _Pragma("unroll 4")
#define STRATA_UNROLL _Pragma("unroll")
#else
#define STRATA_UNROLL_4
#define STRATA_UNROLL
#endif

struct Sum {
  template <typename T>
  STRATA_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct SumFour {
  STRATA_HOST_DEVICE Four operator()(const Four& a, const Four& b) const {
    Four sum;
    for (int i = 0; i < kPack; ++i) sum.at[i] = a.at[i] + b.at[i];
    return sum;
  }
};
struct Largest {
  STRATA_HOST_DEVICE float operator()(float a, float b) const { return a < b ? b : a; }
};
struct Either {
  STRATA_HOST_DEVICE uint64_t operator()(uint64_t a, uint64_t b) const { return a | b; }
};

// Adds term(i), 0 <= i < count, to `sum` in that order, and gives the result to `done`, in one
// thread. The others load the terms.
template <typename Block, typename Term, typename Done>
STRATA_HOST_DEVICE void sum_in_order(Block& block, double sum, int64_t count, const Term& term,
                                     const Done& done) {
  for (int64_t begin = 0; begin < count; begin += block.threads) {
    const int64_t left = count - begin;
    const int some = left < block.threads ? static_cast<int>(left) : block.threads;
    block.each([&](int thread) {
      if (thread < some) block.scratch[thread] = term(begin + thread);
    });
    block.each([&](int thread) {
      for (int i = 0; thread == 0 && i < some; ++i) sum += block.scratch[i];
    });
  }
  block.each([&](int thread) {
    if (thread == 0) done(sum);
  });
}

// Calls body(col) for the packs of a row that belong to a thread, without the first `skipped`.
template <typename Body>
STRATA_HOST_DEVICE void each_pack(int thread, int threads, int64_t cols, const Body& body,
                                  int skipped = 0) {
  const int64_t step = int64_t{kPack} * threads;
  for (int64_t col = int64_t{kPack} * thread + skipped * step; col < cols; col += step) {
    body(col);
  }
}

// Calls body(j, col) for the first kPacks packs of a row that belong to a thread.
template <int kPacks, typename Body>
STRATA_HOST_DEVICE void each_kept(int thread, int threads, int64_t cols, const Body& body) {
  STRATA_UNROLL
  for (int j = 0; j < kPacks; ++j) {
    const int64_t col = kPack * (int64_t{j} * threads + thread);
    if (col < cols) body(j, col);
  }
}

// Whether the threads of a row keep all of it.
inline bool is_kept(int64_t cols) {
  return cols <= int64_t{kPack} * kKept * kThreadsMax;
}

// A row of which threads keep what load(col) makes of their packs, so that memory is read once;
// packs beyond the first kPacks are loaded whenever they are asked for.
template <int kPacks, typename Block, typename Load>
class KeptRow {
 public:
  using Loaded = decltype(std::declval<Load>()(int64_t{}));

  STRATA_HOST_DEVICE KeptRow(Block& block, int64_t cols, const Load& load)
      : threads_(block.threads),
        cols_(cols),
        load_(load),
        kept_(block.template keep<Loaded, kPacks>()) {
    block.each_alone([&](int thread) {
      Loaded* kept = kept_.of(thread);
      each_kept<kPacks>(thread, threads_, cols_, [&](int j, int64_t col) { kept[j] = load(col); });
    });
  }

  // Calls body(col, loaded) for the packs of a thread, ascending.
  template <typename Body>
  STRATA_HOST_DEVICE void each(int thread, const Body& body) {
    kept(thread, [&](int, int64_t col, const Loaded& loaded) { body(col, loaded); });
    each_pack(
        thread, threads_, cols_, [&](int64_t col) { body(col, load_(col)); }, kPacks);
  }

  // Calls body(j, col, loaded) for those that are kept.
  template <typename Body>
  STRATA_HOST_DEVICE void kept(int thread, const Body& body) {
    const Loaded* loaded = kept_.of(thread);
    each_kept<kPacks>(thread, threads_, cols_,
                      [&](int j, int64_t col) { body(j, col, loaded[j]); });
  }

 private:
  const int threads_;
  const int64_t cols_;
  const Load load_;
  decltype(std::declval<Block>().template keep<Loaded, kPacks>()) kept_;
};

template <int kPacks, typename Block, typename Load>
STRATA_HOST_DEVICE KeptRow<kPacks, Block, Load> kept_row(Block& block, int64_t cols,
                                                         const Load& load) {
  return {block, cols, load};
}

// Calls body with how many packs of a row a thread keeps: short rows leave registers to others.
template <typename Body>
void with_kept(int64_t cols, const Body& body) {
  cols <= kPack* kWarp ? body(std::integral_constant<int, 1>())
                       : body(std::integral_constant<int, kKept>());
}

}  // namespace strata::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

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
//   block.reduce(f, combine)          f(thread) folded, the same result for all: in each warp as a
//                                     tree, for w = 16, 8, 4, 2, 1:
//                                     part[t] = combine(part[t], part[t + w]), t < w;
//                                     then the warps, ascending
//   block.scratch                     doubles, Body::kScratch for each thread; none without that
//
// A thread keeps nothing from one call of the block to the next. So loops over blocks and threads
// on the host give the order of every sum, and the bits, of the device.
namespace strata::kernels::cuda {

inline constexpr int kThreadsMax = 512, kWarp = 32;

// Threads for `cols` elements, of which each takes some packs: a power of two from a warp on. With
// several packs a thread has loads in flight while others are combined.
inline int threads_for(int64_t cols, int packs, int most) {
  int threads = kWarp;
  while (threads < most && int64_t{threads} * packs * kPack < cols) threads *= 2;
  return threads;
}
// Threads that share one row of `cols` elements.
inline int row_threads(int64_t cols) {
  return threads_for(cols, 4, kThreadsMax);
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

// Calls body(col) for the packs of a row that belong to a thread.
template <typename Body>
STRATA_HOST_DEVICE void each_pack(int thread, int threads, int64_t cols, const Body& body) {
  for (int64_t col = int64_t{kPack} * thread; col < cols; col += int64_t{kPack} * threads) {
    body(col);
  }
}

}  // namespace strata::kernels::cuda

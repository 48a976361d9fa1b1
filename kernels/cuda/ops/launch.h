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
//
// A kernel is a struct with such an operator(). It is called in any order; within a queue, each
// call of `on` sees what the one before it has written. What a block offers:
//
//   block.threads                     how many
//   block.each(f)                     f(thread) for every thread; then all see what each wrote
//   block.reduce(f, combine)          f(thread) folded as a tree, the same result for all: for
//                                     w = threads/2, ..., 2, 1:
//                                     part[t] = combine(part[t], part[t + w]), t < w
//   block.scratch                     doubles, one for each thread
//
// A thread keeps nothing from one call of the block to the next. So loops over blocks and threads
// on the host give the order of every sum, and the bits, of the device.
namespace strata::kernels::cuda {

inline constexpr int kThreadsMax = 512;

// Threads that share one row of `cols` elements: a power of two from 32 on.
inline int row_threads(int64_t cols) {
  int threads = 32;
  while (threads < kThreadsMax && threads * kPack < cols) threads *= 2;
  return threads;
}

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
  STRATA_HOST_DEVICE int operator()(int a, int b) const { return a | b; }
};

// Calls body(col) for the packs of a row that belong to a thread.
template <typename Body>
STRATA_HOST_DEVICE void each_pack(int thread, int threads, int64_t cols, const Body& body) {
  for (int64_t col = int64_t{kPack} * thread; col < cols; col += int64_t{kPack} * threads) {
    body(col);
  }
}

}  // namespace strata::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/ops/product.h"

// Runs kernels of the CUDA device on the calling thread (see ops/launch.h): loops over blocks and
// threads, with the same order of every sum.
namespace strata::kernels::cuda {

template <typename T, int kCount>
struct KeptOfThreads {
  std::vector<T> all;
  T* of(int thread) { return all.data() + size_t{kCount} * static_cast<size_t>(thread); }
};

class HostBlock {
 public:
  HostBlock(int threads_in, int scratch_in)
      : threads(threads_in),
        memory_(static_cast<size_t>(threads_in * scratch_in)),
        scratch(memory_.data()) {}

  const int threads;

  template <typename Function>
  void each(const Function& function) const {
    for (int thread = 0; thread < threads; ++thread) function(thread);
  }

  template <typename Function>
  void each_alone(const Function& function) const {
    each(function);
  }

  template <typename T, int kCount>
  KeptOfThreads<T, kCount> keep() const {
    return {std::vector<T>(size_t{kCount} * static_cast<size_t>(threads))};
  }

  template <typename Function, typename Combine>
  auto reduce(const Function& function, const Combine& combine) const {
    std::vector<decltype(function(0))> part;
    for (int thread = 0; thread < threads; ++thread) part.push_back(function(thread));
    constexpr size_t kStep = kWarp;
    for (size_t warp = 0; warp < part.size(); warp += kStep) {
      for (size_t width = kStep / 2; width >= 1; width /= 2) {
        for (size_t t = warp; t < warp + width; ++t) part[t] = combine(part[t], part[t + width]);
      }
      if (warp > 0) part[0] = combine(part[0], part[warp]);
    }
    return part[0];
  }

 private:
  std::vector<double> memory_;

 public:
  double* const scratch;
};

class HostLaunch {
 public:
  template <typename Body>
  void blocks(int64_t count, int threads, const Body& body) const {
    STRATA_CHECK(threads <= kThreadsMax && (threads & (threads - 1)) == 0);
    HostBlock block(threads, scratch_of<Body>());
    for (int64_t index = 0; index < count; ++index) body(block, index);
  }

  template <typename Body>
  void grid(int64_t rows, int64_t cols, const Body& body) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; col += kPack) body(row, col);
    }
  }

  template <typename Op>
  bool fused(const Op&) const {
    return false;
  }

  // Loops that sum in f64: the library's products are not what a twin checks.
  void product(const Product& product) const;
};

}  // namespace strata::kernels::cuda

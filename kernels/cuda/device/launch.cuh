// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/queue_cuda.h"
#include "kernels/cuda/ops/launch.h"

// Runs kernels on the stream of a queue (see ops/launch.h).
namespace strata::kernels::cuda {

// Its indices are constants after unrolling, so it stays in registers.
template <typename T, int kCount>
struct InRegisters {
  T at[kCount] = {};
  __device__ T* of(int) { return at; }
};

class DeviceBlock {
 public:
  __device__ explicit DeviceBlock(double* scratch_in)
      : threads(static_cast<int>(blockDim.x)), scratch(scratch_in) {}

  const int threads;
  double* const scratch;

  template <typename Function>
  __device__ void each(const Function& function) const {
    function(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <typename Function>
  __device__ void each_alone(const Function& function) const {
    function(static_cast<int>(threadIdx.x));
  }

  template <typename T, int kCount>
  __device__ InRegisters<T, kCount> keep() const {
    return {};
  }

  template <typename Function, typename Combine>
  __device__ auto reduce(const Function& function, const Combine& combine) const {
    using T = decltype(function(0));
    __shared__ T of_warp[kThreadsMax / kWarp];
    const int thread = static_cast<int>(threadIdx.x);
    T part = function(thread);
    for (int width = kWarp / 2; width >= 1; width /= 2) part = combine(part, from(part, width));
    if (thread % kWarp == 0) of_warp[thread / kWarp] = part;
    __syncthreads();
    T total = of_warp[0];
    for (int warp = 1; warp < threads / kWarp; ++warp) total = combine(total, of_warp[warp]);
    __syncthreads();  // before the next reduction writes
    return total;
  }

 private:
  // The value of the thread that is `distance` further in the warp.
  template <typename T>
  __device__ static T from(const T& value, int distance) {
    static_assert(sizeof(T) % sizeof(int) == 0);
    constexpr int kWords = sizeof(T) / sizeof(int);
    int words[kWords];
    memcpy(words, &value, sizeof(T));
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_down_sync(~0u, words[i], distance);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
  }
};

template <typename Body>
__global__ void __launch_bounds__(kThreadsMax) run_blocks(const Body body) {
  extern __shared__ __align__(16) double scratch[];  // for packs
  DeviceBlock block(scratch);
  body(block, static_cast<int64_t>(blockIdx.x));
}

template <typename Body>
__global__ void __launch_bounds__(kThreadsMax)
    run_grid(const Body body, int64_t cols, unsigned tiles) {
  const int64_t tile = blockIdx.x % tiles;
  const int64_t col = (tile * blockDim.x + threadIdx.x) * kPack;
  if (col < cols) body(static_cast<int64_t>(blockIdx.x / tiles), col);
}

class StreamLaunch {
 public:
  explicit StreamLaunch(CudaQueue& queue) : queue_(queue) {}

  template <typename Body>
  void blocks(int64_t count, int threads, const Body& body) const {
    if (count == 0) return;
    STRATA_CHECK(count <= INT32_MAX && threads <= kThreadsMax);
    const size_t scratch = sizeof(double) * scratch_of<Body>() * static_cast<size_t>(threads);
    run_blocks<<<static_cast<unsigned>(count), static_cast<unsigned>(threads), scratch,
                 queue_.stream()>>>(body);
    queue_.check_launch();
  }

  template <typename Body>
  void grid(int64_t rows, int64_t cols, const Body& body) const {
    if (rows == 0 || cols == 0) return;
    const int threads = threads_for(cols, 1, 256);
    const int64_t tiles = ceil_div(cols, int64_t{kPack} * threads);
    STRATA_CHECK(rows * tiles <= INT32_MAX);
    run_grid<<<static_cast<unsigned>(rows * tiles), static_cast<unsigned>(threads), 0,
               queue_.stream()>>>(body, cols, static_cast<unsigned>(tiles));
    queue_.check_launch();
  }

  void product(const Product& product) const { queue_.run(product); }
  template <typename Op>
  bool fused(const Op& op) const {
    return queue_.run_fused(op);
  }

 private:
  CudaQueue& queue_;
};

// Defines an op of the device's table in a .cu file.
#define STRATA_CUDA_OP(member, Op)                   \
  void issue_##member(Queue& queue, const Op& op) {  \
    StreamLaunch on(static_cast<CudaQueue&>(queue)); \
    member(on, op);                                  \
  }

}  // namespace strata::kernels::cuda

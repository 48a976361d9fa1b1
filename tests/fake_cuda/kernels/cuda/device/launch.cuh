// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/buffers.h"
#include "kernels/cuda/device/queue_cuda.h"
#include "kernels/cuda/twin/host_launch.h"
#include "tests/fake_cuda/fake_device.h"

// Takes the place of kernels/cuda/device/launch.cuh where the host's compiler compiles its ops_*.cu
// for the fake device: kernels run as their host twins, on the thread of the stream, and find the
// memory of the device in its second mapping.
namespace strata::kernels::cuda {

class StreamLaunch {
 public:
  explicit StreamLaunch(CudaQueue& queue) : queue_(queue) {}

  template <typename Body>
  void blocks(int64_t count, int threads, const Body& body) const {
    if (count == 0) return;
    STRATA_CHECK(count <= INT32_MAX && threads <= kThreadsMax);
    start([=] { HostLaunch().blocks(count, threads, body); });
  }
  template <typename Body>
  void grid(int64_t rows, int64_t cols, const Body& body) const {
    if (rows == 0 || cols == 0) return;
    start([=] { HostLaunch().grid(rows, cols, body); });
  }
  void product(const Product& product) const { queue_.run(product); }
  template <typename Op>
  bool fused(const Op& op) const {
    return queue_.run_fused(op);
  }

 private:
  void start(std::function<void()> run) const {
    fake_cuda::start_kernel(queue_.stream(), std::move(run));
    queue_.check_launch();
  }
  CudaQueue& queue_;
};

// Issues an op with addresses of the second mapping. A buffer outside of the device's memory keeps
// its address; the device fails when the op runs.
template <typename Op, typename Issue>
void issue_on_fake(Queue& queue, Op op, const Issue& issue) {
  fake_cuda::Ranges ranges;
  each_buffer(op, [&](auto*& pointer, int64_t bytes, bool written) {
    using Pointer = std::remove_reference_t<decltype(pointer)>;
    if (pointer == nullptr || bytes == 0) return;
    ranges.push_back({reinterpret_cast<const std::byte*>(pointer), bytes, written});
    std::byte* mapped = fake_cuda::Device::instance().mapped(pointer, bytes);
    if (mapped != nullptr) pointer = reinterpret_cast<Pointer>(mapped);
  });
  const fake_cuda::OpScope scope(ranges);
  issue(StreamLaunch(static_cast<CudaQueue&>(queue)), op);
}

#define STRATA_CUDA_OP(member, Op)                                               \
  void issue_##member(Queue& queue, const Op& given) {                           \
    issue_on_fake(queue, given, [](const auto& on, const Op& op) { member(on, op); }); \
  }

}  // namespace strata::kernels::cuda

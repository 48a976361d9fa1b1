// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/device/fused_attention.h"
#include "kernels/cuda/device/products.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/device.h"

namespace strata::kernels::cuda {

// What all queues of a device share. It must outlive them.
struct Shared {
  explicit Shared(int index_in) : index(index_in), products(index_in), attention(index_in) {}
  const int index;  // of the device
  Products products;
  FusedAttention attention;
  FirstFailure failure;
};

// A queue that is a stream. Each op has an event at its end, and one at its begin unless it follows
// the op before at once, in a ring; a thread waits for the ends in order, and counts them. So
// nobody polls, and no call waits for the whole device. `ranges` of ops are not checked here:
// kernels/emulated does that.
//
// Memory: host memory that `copy` names should be pinned; otherwise the copy is slower, and the
// call may wait for it.
class CudaQueue : public Queue {
 public:
  CudaQueue(Shared& shared, const char* name, int depth, bool first);
  ~CudaQueue() override;

  void begin(const char* name, std::span<const MemoryRange> ranges) override;
  int64_t end() override;
  void wait(Queue& other, int64_t count) override;
  void let_wait(void* stream, int64_t count) override;
  void wait_for(void* stream) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  int64_t completed() override;
  void sleep(int64_t count, double timeout_s) override;
  void wake() override;
  Span span_of(int64_t count) override;

  // For ops. Errors name the op in progress.
  cudaStream_t stream() const { return stream_; }
  void named(const std::function<void()>& call) const;
  void run(const Product& product) const {
    named([&] { shared_.products.run(stream_, product); });
  }
  // False: the op is left to the caller.
  template <typename Op>
  bool run_fused(const Op& op) const {
    bool taken = false;
    named([&] { taken = shared_.attention.run(stream_, op); });
    return taken;
  }
  void check_launch() const;

 private:
  struct Slot {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::array<char, 64> name = {};
    bool follows = false;  // begins where the op before ends, and has no event for that
    Span span;
  };

  Slot& slot_of(int64_t count) { return slots_[static_cast<size_t>(count) % slots_.size()]; }
  const Slot& slot_of(int64_t count) const {
    return slots_[static_cast<size_t>(count) % slots_.size()];
  }
  std::string place(const Slot& slot) const;
  void check_op(cudaError_t error, const Slot& slot) const;
  void check_issued(cudaError_t error, const Slot& slot) const;
  void leave() const;
  bool is_busy();
  void watch();
  void finish(int64_t count);

  // Constant after construction
  Shared& shared_;
  const std::string name_;
  cudaStream_t stream_ = nullptr;
  std::deque<Slot> slots_;  // the events; names belong to the issuing thread, spans to the watcher

  cudaEvent_t caller_ = nullptr;  // of a caller's stream

  // Owned by the thread that issues
  int64_t issued_ = 0;              // ops closed
  bool waits_ = false;              // for another stream, since the last op
  int before_ = 0;                  // that thread's current device outside of ops
  mutable bool is_within_ = false;  // an op: the device is current, and the op's range is open

  std::mutex mu_;
  std::condition_variable changed_;
  int64_t closed_ = 0;  // Guarded by mu_, like all below
  int64_t completed_ = 0;
  bool failed_ = false;
  bool woken_ = false;
  bool stopping_ = false;

  std::jthread watcher_;
};

}  // namespace strata::kernels::cuda

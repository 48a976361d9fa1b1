// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "engine/exec/executor_impl.h"
#include "engine/exec/queue_work.h"

namespace strata::exec {

// The compute lane of a caller that computes on a device with memory of its own.
//
// Two ops of queues frame a use. The first waits for the weights and clears gradients; the caller's
// stream waits for it. The second, on the lane's queue, waits for the caller's stream; it is the
// lane's op, so that other lanes wait for the use as for any op. A thread publishes it once the
// device has completed it.
//
// Threads: publish() is the thread's; all else is the caller's.
class Executor::Impl::DeviceUses {
 public:
  explicit DeviceUses(Impl& impl);

  // After the op's waits hold. `zeroes` as in clear_gradients().
  void open(const Instance& instance, const plan::Op& op, std::optional<void*> stream, bool zeroes);
  void give();  // what open() did precedes the caller's work
  void close(Instance& instance, uint32_t op, bool is_skipped, bool is_last);
  void copy(const Instance& instance, const plan::Op& op, const Copied& copied);

  void fill_zeros(float* values, int64_t count);  // within open()
  void publish();

 private:
  static constexpr int kDepth = QueueWork::kDepth;
  static constexpr double kSleep_s = 0.5;  // so that a stop is noticed

  struct Closed {
    Instance* instance = nullptr;
    uint32_t op = 0;
    int64_t opened = 0;              // its first op of opens_
    std::optional<double> opened_s;  // when that had ended, where it is known
    bool is_skipped = false;
    bool is_last = false;  // of the instance
  };
  Closed& closed_use(int64_t count) { return uses_[static_cast<size_t>(count) % uses_.size()]; }
  void take_ranges(const Instance& instance, const plan::Op& op);
  void await_opened() const;

  Impl& impl_;
  kernels::Queue& lane_;
  const std::unique_ptr<kernels::Queue> opens_;

  // Owned by the caller's thread
  std::vector<kernels::MemoryRange> ranges_;
  std::optional<void*> stream_;  // of the open use
  int64_t opened_ = 0;           // ops of opens_
  int64_t first_ = 0;            // which of them opened the use
  std::optional<double> opened_s_;

  std::array<Closed, 2 * kDepth> uses_;  // published by closed_
  std::atomic<int64_t> closed_ = 0;
};

}  // namespace strata::exec

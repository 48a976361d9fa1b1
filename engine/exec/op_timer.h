// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/device.h"
#include "kernels/parallel.h"

namespace strata::exec {

// Times what is issued to a queue of its own. A device with memory of its own gives the times; on
// the host, the clock does. Throws Error as the device does.
class OpTimer {
 public:
  using Ranges = std::span<const kernels::MemoryRange>;
  using Issue = std::function<void(kernels::Queue&)>;

  static constexpr int kDepth = 16;  // of the queue

  explicit OpTimer(kernels::Device& device);

  kernels::Queue& queue() const { return *queue_; }

  // The seconds of one op that issues `times` over. `name` is for messages of the device.
  double once(const char* name, Ranges ranges, const Issue& issue, int times = 1);

  // The median of rounds for `seconds`, at least three, after two that warm up. Where one issue
  // takes little, a round is one op of several, so that the time that the op itself takes does not
  // count.
  double median(const char* name, Ranges ranges, const Issue& issue, double seconds);

 private:
  const bool on_device_;
  const kernels::Parallel parallel_;
  const std::unique_ptr<kernels::Queue> queue_;
};

// Waits until `count` ops of the queue have completed.
void await(kernels::Queue& queue, int64_t count);

}  // namespace strata::exec

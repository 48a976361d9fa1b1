// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/description.h"

// Where arithmetic happens: memory, queues, copies between memories, and ops.
namespace strata::kernels {

// Memory that one op of a plan may touch. A read range must not be written by the op's kernels.
struct MemoryRange {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

// Translates addresses of a device's memory for host code that runs in a queue's order.
class HostView {
 public:
  virtual ~HostView() = default;
  virtual void* at(void* address) const = 0;
};

// Work of a device, done in the order in which it is issued. An op of a plan is what stands between
// begin() and end(): kernels of DeviceOps, copies, calls. The ops of a queue are counted from 1.
//
// Threads: begin(), end(), wait() and everything that issues belong to one thread; completed(),
// sleep() and wake() may be called from any. Failure: a device that fails throws Error{kDevice} out
// of the next call. A queue that waits for one that failed fails with the same error.
class Queue {
 public:
  virtual ~Queue() = default;

  // Opens the next op. Kernels and copies touch nothing but `ranges`; the names are for messages.
  virtual void begin(const char* name, std::span<const MemoryRange> ranges) = 0;

  // Closes it. Returns the number of ops closed so far.
  virtual int64_t end() = 0;

  // What is issued next starts after the first `count` ops of `other` have completed. They are
  // closed already, and `other` is a queue of the same device.
  virtual void wait(Queue& other, int64_t count) = 0;

  // Between host memory and the device's, or within either.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // Runs host code in the queue's order: for work that the device's own library does elsewhere.
  virtual void call(std::function<void(const HostView&)> function) = 0;

  // How many ops have completed.
  virtual int64_t completed() = 0;

  // Sleeps until `count` ops have completed, for at most `timeout_s`, or until wake(). A wake()
  // that comes before sleep() ends that sleep.
  virtual void sleep(int64_t count, double timeout_s) = 0;
  virtual void wake() = 0;

  // When op `count` began and ended, on the clock of base/clock.h. Kept for the last `depth` ops
  // that have completed.
  struct Span {
    double begin_s = 0;
    double end_s = 0;
  };
  virtual Span span_of(int64_t count) = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
};

using DeviceOps = OpTable<Queue&>;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceDescription& description() const = 0;
  virtual const DeviceOps& ops() const = 0;

  // Zeroed. Throws Error{kDoesNotFit}. The device outlives its memory and its queues.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;

  // At most `depth` ops of the queue are closed and not completed at a time.
  virtual std::unique_ptr<Queue> make_queue(const char* name, int depth) = 0;
};

// The host itself: an op has completed when it is issued. Kernels run in the issuing thread's
// Parallel, of at most `threads`.
std::unique_ptr<Device> make_host_device(const Backend& backend, int threads);

}  // namespace strata::kernels

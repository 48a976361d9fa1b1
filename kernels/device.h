// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/error.h"
#include "kernels/backend.h"
#include "kernels/description.h"
#include "kernels/peers.h"

// Devices that do the arithmetic: memory, queues, copies between memories, and ops.
namespace strata::kernels {

// Memory that one op of a plan may touch. A read range must not be written by the op's kernels.
struct MemoryRange {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

// How many of the bytes from `pointer` on lie in ranges that allow it. Adjacent ranges count as
// one.
inline int64_t covered_bytes(std::span<const MemoryRange> ranges, const void* pointer,
                             int64_t bytes, bool written) {
  const auto* const begin = static_cast<const std::byte*>(pointer);
  const std::byte* at = begin;
  for (bool moved = true; moved && at < begin + bytes;) {
    moved = false;
    for (const MemoryRange& range : ranges) {
      const auto* const first = static_cast<const std::byte*>(range.data);
      if ((written && !range.written) || at < first || at >= first + range.bytes) continue;
      at = first + range.bytes;
      moved = true;
    }
  }
  return std::min<int64_t>(at - begin, bytes);
}

// A queue of a device, which does its work in the order of issue. An op of a plan is everything
// issued between begin() and end(): kernels of DeviceOps and copies. The ops of a queue are counted
// from 1.
//
// Threads: begin(), end(), wait() and everything that issues belong to one thread, whose current
// device is as before after end(); completed(), sleep(), wake() and let_wait() may be called from
// any. Failure: when the device fails, the next call throws
// Error{kDevice}. A queue that waits for a failed queue fails with the same error.
class Queue {
 public:
  virtual ~Queue() = default;

  // Opens the next op. Its kernels and copies may touch only `ranges`; `name` is for messages.
  virtual void begin(const char* name, std::span<const MemoryRange> ranges) = 0;

  // Closes the op. Returns the number of ops closed so far.
  virtual int64_t end() = 0;

  // Makes later work wait until the first `count` ops of `other` have completed. These ops must be
  // closed already, and `other` must be a queue of the same device.
  virtual void wait(Queue& other, int64_t count) = 0;

  // For a stream of a caller's, by its handle: CUDA's is a cudaStream_t, the emulated device's a
  // Queue* of that device. let_wait() makes later work of the stream wait until the first `count`
  // ops of this queue, which are closed, have completed. wait_for() makes later work of this queue
  // wait for all that was issued to the stream.
  virtual void let_wait(void* stream, int64_t count) = 0;
  virtual void wait_for(void* stream) = 0;

  // Copies between host memory and device memory, or within either.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // The number of ops that have completed.
  virtual int64_t completed() = 0;

  // Sleeps until `count` ops have completed, wake() is called, or `timeout_s` has passed. A wake()
  // before sleep() ends that sleep at once.
  virtual void sleep(int64_t count, double timeout_s) = 0;
  virtual void wake() = 0;

  // When op `count` began and ended, on the clock of base/clock.h. Known for the last `depth`
  // completed ops.
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

// Host memory that copies use. The object must end before the memory does.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

using DeviceOps = OpTable<Queue&>;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceDescription& description() const = 0;
  virtual const DeviceOps& ops() const = 0;

  // How many ops a library has computed as a whole, such as attention by cuDNN. Threads: any.
  virtual int64_t fused_ops() const { return 0; }

  // The NUMA node of the machine that is next to the device; -1 where none is known to be.
  virtual int numa_node() const { return -1; }

  // Returns zeroed memory. Throws Error{kDoesNotFit}. The device must outlive its memory and its
  // queues.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;

  // Prepares host memory, so that copies run at the link's speed and issuing one never waits for
  // it. Returns null where the system refuses that: copies work, but slower. A device that computes
  // in host memory throws Error{kDoesNotFit} then.
  virtual std::unique_ptr<PinnedMemory> pin(std::byte*, int64_t) {
    return std::make_unique<PinnedMemory>();
  }

  // An id for a group of devices, from any of them. Throws Error{kDevice} where devices of this
  // kind cannot send each other memory.
  virtual PeersId make_peers_id() { throw_without_peers(); }

  // Joins a group of devices of ranks, no two of which share one. Returns when all are there. This
  // device must outlive it, and it the ops that exchange. Throws Error{kPeer} where they cannot
  // meet, and what keep_waiting throws.
  virtual std::unique_ptr<Peers> join(const PeersOptions&) { throw_without_peers(); }

  // At most `depth` ops of the queue may be closed and not yet completed. Where ops of several
  // queues could run, those of queues that go `first` start before others: for short ops that
  // others wait for.
  std::unique_ptr<Queue> make_queue(const char* name, int depth, bool first = false) {
    return make({.name = name, .depth = depth, .first = first});
  }

 protected:
  struct QueueOptions {
    const char* name = "";
    int depth = 1;
    bool first = false;
  };
  virtual std::unique_ptr<Queue> make(const QueueOptions& options) = 0;

 private:
  [[noreturn]] void throw_without_peers() const {
    throw Error(ErrorCode::kDevice, std::string(description().name) +
                                        ": these devices cannot send each other memory (give "
                                        "--device-exchange host)");
  }
};

// The host as a device: issuing an op completes it. Kernels run in the issuing thread's Parallel,
// with at most `threads` threads.
std::unique_ptr<Device> make_host_device(const Backend& backend, int threads);

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "kernels/buffers.h"
#include "kernels/device.h"
#include "kernels/issue_table.h"

// The ops of a device as a backend on host memory, for tests: each call copies an op's buffers to
// the device, issues the op, and copies back what it writes. Buffers that overlap on the host
// overlap in the same way on the device.
namespace strata::kernels {

class DeviceUnderTest {
 public:
  static constexpr int64_t kBytes = int64_t{3} << 29;
  static constexpr int64_t kAlignment = 256;

  // Copies no more than the first `scratch_bytes` of scratch.
  explicit DeviceUnderTest(Device& device, int64_t scratch_bytes = kBytes)
      : device_(device),
        scratch_bytes_(scratch_bytes),
        memory_(device.allocate(kBytes)),
        queue_(device.make_queue("test", 4)) {}

  template <auto Member, typename Op>
  void run(Op op) {
    parts_.clear();
    each_buffer(op, [&](auto*& pointer, int64_t bytes, bool written) {
      if (pointer != nullptr && bytes > 0) add(pointer, bytes, written);
    });
    if constexpr (requires { op.workspace; }) leave(op.workspace.data);
    place();
    each_buffer(op, [&](auto*& pointer, int64_t bytes, bool) {
      using Pointer = std::remove_reference_t<decltype(pointer)>;
      if (pointer != nullptr && bytes > 0) pointer = static_cast<Pointer>(on_device(pointer));
    });
    ranges_.clear();
    for (const Part& part : parts_) {
      ranges_.push_back({part.host, part.bytes, part.written});
      ranges_.push_back({part.device, part.bytes, true});
    }
    queue_->begin("op under test", ranges_);
    for (const Part& part : parts_) queue_->copy(part.device, part.host, part.copied_bytes);
    (device_.ops().*Member)(*queue_, op);
    for (const Part& part : parts_) {
      if (part.written) queue_->copy(part.host, part.device, part.bytes);
    }
    const int64_t count = queue_->end();
    while (queue_->completed() < count) queue_->sleep(count, 1.0);
  }

 private:
  // Bytes of the host that overlap no other part's.
  struct Part {
    std::byte* host;
    int64_t bytes;
    bool written;
    int64_t copied_bytes = bytes;
    std::byte* device = nullptr;
  };

  void add(const void* pointer, int64_t bytes, bool written) {
    Part part = {static_cast<std::byte*>(const_cast<void*>(pointer)), bytes, written};
    std::erase_if(parts_, [&](const Part& other) {
      if (other.host + other.bytes <= part.host || part.host + part.bytes <= other.host) {
        return false;
      }
      std::byte* end = std::max(part.host + part.bytes, other.host + other.bytes);
      part.host = std::min(part.host, other.host);
      part.bytes = end - part.host;
      part.written = part.written || other.written;
      part.copied_bytes = part.bytes;
      return true;
    });
    parts_.push_back(part);
  }

  // Scratch means nothing after the op.
  void leave(const std::byte* scratch) {
    for (Part& part : parts_) {
      if (part.host != scratch) continue;
      part.written = false;
      part.copied_bytes = std::min(part.bytes, scratch_bytes_);
    }
  }

  // Each part keeps its address modulo the alignment.
  void place() {
    int64_t at = 0;
    for (Part& part : parts_) {
      const auto shift = static_cast<int64_t>(reinterpret_cast<uintptr_t>(part.host) % kAlignment);
      part.device = memory_->data() + at + shift;
      at += (shift + part.bytes + kAlignment) / kAlignment * kAlignment;
    }
    STRATA_CHECK(at <= kBytes);
  }

  void* on_device(const void* pointer) const {
    const auto* at = static_cast<const std::byte*>(pointer);
    for (const Part& part : parts_) {
      if (at >= part.host && at < part.host + part.bytes) return part.device + (at - part.host);
    }
    return nullptr;
  }

  Device& device_;
  const int64_t scratch_bytes_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<Queue> queue_;
  std::vector<Part> parts_;
  std::vector<MemoryRange> ranges_;
};

// The device that the table below runs on.
inline DeviceUnderTest*& device_under_test() {
  static DeviceUnderTest* device = nullptr;
  return device;
}

template <auto Member, auto HostMember>
struct RunOnDevice {
  using Op = typename OpOf<decltype(HostMember)>::type;
  static void op(const Op& op) { device_under_test()->run<Member>(op); }
};

// `files` converts the elements of files, which no device does.
inline Backend device_backend(const Device& device, const Backend& files) {
  return {
      {.name = device.description().name,
#define STRATA_OP(member, Op) .member = RunOnDevice<&DeviceOps::member, &OpTable<>::member>::op,
       STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
      },
      files.convert_in,
      files.convert_out,
      device.description().kernels,
  };
}

}  // namespace strata::kernels

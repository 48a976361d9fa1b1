// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "engine/base/dtype.h"
#include "engine/memory/arena.h"
#include "kernels/device.h"

namespace strata::exec {

// Host memory for copies to a device.
class PinnedBlock {
 public:
  PinnedBlock(kernels::Device& device, int64_t bytes)
      : arena_(bytes), pinned_(device.pin(arena_.data(), bytes)) {}

  std::byte* data() const { return arena_.data(); }
  int64_t bytes() const { return arena_.bytes(); }
  kernels::MemoryRange range() const { return {data(), bytes(), true}; }

 private:
  const memory::Arena arena_;
  const std::unique_ptr<kernels::PinnedMemory> pinned_;
};

// Memory of a device, or of the host for one that has none of its own.
class DeviceBlock {
 public:
  DeviceBlock(kernels::Device& device, int64_t bytes) {
    if (device.description().discrete) {
      on_device_ = device.allocate(bytes);
    } else {
      on_host_.emplace(device, bytes);
    }
  }
  std::byte* data() const { return on_device_ ? on_device_->data() : on_host_->data(); }

 private:
  std::optional<PinnedBlock> on_host_;
  std::unique_ptr<kernels::DeviceMemory> on_device_;
};

// Numbers to measure with: small, of both signs and different ones, because a processor that
// multiplies zeros takes less power and so may run at a higher clock than in training.
// Must outlive the ops that read it.
class ProbeValues {
 public:
  ProbeValues(kernels::Device& device, DType type);

  // What an op that fills reads.
  kernels::MemoryRange range() const { return {block_.data(), block_.bytes(), false}; }

  // Fills memory of the queue's device, within an op.
  void fill(kernels::Queue& queue, std::byte* to, int64_t bytes) const;

 private:
  PinnedBlock block_;
};

}  // namespace strata::exec

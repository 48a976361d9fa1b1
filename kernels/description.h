// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "engine/base/dtype.h"

namespace strata::kernels {

// The set of kernels that a device runs, which decides how much scratch its ops take.
enum class KernelSet : uint8_t { kCpu, kRef, kCuda };

// What a planner must know about a device. Plain data that exists without the device, so that plans
// can be made for other machines.
struct DeviceDescription {
  const char* name = "cpu";
  bool discrete = false;  // has memory of its own, which host code cannot read
  KernelSet kernels = KernelSet::kCpu;
  int threads = 1;  // that run its kernels
  DType interior = DType::kF32;
  bool contexts = true;  // attention takes queries of a part of a sequence (kernels/context.h)
  bool peers = false;    // in this run the ranks' devices send each other memory (kernels/peers.h)

  // Limits of its ops. The width of an activation's row is a multiple of column_multiple.
  int64_t head_size_max = std::numeric_limits<int64_t>::max();
  int64_t head_size_multiple = 1;
  int64_t column_multiple = 1;
};

// A GPU of kernels/cuda. Its interiors have the type of the weights. With `unified`, its ops are in
// the host's memory.
inline DeviceDescription describe_cuda(DType weights, bool unified = false) {
  return {.name = unified ? "unified" : "cuda",
          .discrete = !unified,
          .kernels = KernelSet::kCuda,
          .interior = weights,
          .contexts = false};
}

// Whether its ops are issued to queues of its own, and not done by the host.
inline bool has_queues(const DeviceDescription& device) {
  return device.discrete || device.kernels == KernelSet::kCuda;
}

// Of the workspaces of its ops (workspace.h).
inline int64_t workspace_alignment(const DeviceDescription& device) {
  return device.kernels == KernelSet::kCuda ? 256 : 64;
}

// Throws Error{kConfig} when the device's kernels do not support its `interior` type.
void require_possible(const DeviceDescription& device);

// Scratch bytes of an op on a device, from its shape fields and dtypes. Defined for the products,
// attention, the backward of norms, cross entropy and the sum of squares.
template <typename Op>
int64_t workspace_bytes(const Op& op, const DeviceDescription& device);

}  // namespace strata::kernels

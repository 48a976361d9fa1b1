// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "engine/base/dtype.h"

namespace strata::kernels {

// Whose kernels a device runs: this decides how much scratch its ops take.
enum class KernelSet : uint8_t { kCpu, kRef };

// What a planner asks of a device. Plain data, which exists without the device: plans for other
// machines need it.
struct DeviceDescription {
  const char* name = "cpu";
  bool discrete = false;  // has memory of its own, which no host code can read
  KernelSet kernels = KernelSet::kCpu;
  int threads = 1;  // that run its kernels
  DType interior = DType::kF32;

  // What its ops take. Columns are those of activations: the width of a row is a multiple of it.
  int64_t head_size_max = std::numeric_limits<int64_t>::max();
  int64_t head_size_multiple = 1;
  int64_t column_multiple = 1;
};

// Throws Error{kConfig} where the device's kernels do not take its interiors.
void require_possible(const DeviceDescription& device);

// Scratch bytes that an op takes on a device, by shape fields and dtypes alone: of the products,
// attention, the backward of the norms, cross entropy and the sum of squares.
template <typename Op>
int64_t workspace_bytes(const Op& op, const DeviceDescription& device);

}  // namespace strata::kernels

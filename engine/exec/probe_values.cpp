// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/probe_values.h"

#include <algorithm>
#include <cstring>

#include "engine/base/rng.h"

namespace strata::exec {
namespace {

constexpr int64_t kCount = 1 << 16;

}  // namespace

ProbeValues::ProbeValues(kernels::Device& device, DType type)
    : block_(device, kCount * bytes_of(type)) {
  const Philox random(1);
  for (int64_t i = 0; i < kCount; ++i) {
    const float value = 0.1f * static_cast<float>(random.uniform(static_cast<uint64_t>(i))) - 0.05f;
    const uint16_t half = type == DType::kF16 ? to_f16(value) : to_bf16(value);
    const void* from = type == DType::kF32 ? static_cast<const void*>(&value) : &half;
    std::memcpy(block_.data() + i * bytes_of(type), from, static_cast<size_t>(bytes_of(type)));
  }
}

// What is filled already is copied within the device.
void ProbeValues::fill(kernels::Queue& queue, std::byte* to, int64_t bytes) const {
  int64_t filled = std::min(bytes, block_.bytes());
  if (filled > 0) queue.copy(to, block_.data(), filled);
  while (filled < bytes) {
    const int64_t more = std::min(bytes - filled, filled);
    queue.copy(to + filled, to, more);
    filled += more;
  }
}

}  // namespace strata::exec

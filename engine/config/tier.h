// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace strata::config {

// Where bytes live. Where device and host memory are one, there is only the host tier.
enum class Tier : uint8_t { kDevice, kHost, kNvme };
inline constexpr int kTierCount = 3;

inline const char* name_of(Tier tier) {
  return tier == Tier::kDevice ? "device" : tier == Tier::kHost ? "host" : "nvme";
}

}  // namespace strata::config

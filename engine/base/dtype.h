// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "engine/base/check.h"

namespace strata {

// Types of elements in files and memory. kF8E4M3 occurs in files only.
enum class DType : uint8_t { kF32, kBF16, kF16, kF8E4M3 };

inline int64_t bytes_of(DType type) {
  return type == DType::kF32 ? 4 : type == DType::kF8E4M3 ? 1 : 2;
}
inline const char* name_of(DType type) {
  constexpr const char* kNames[] = {"F32", "BF16", "F16", "F8_E4M3"};
  return kNames[static_cast<int>(type)];
}

// Replaces every NaN by one bit pattern, so that all backends write the same state.
constexpr float canonical(float value) {
  const bool is_nan = (std::bit_cast<uint32_t>(value) & 0x7fffffffu) > 0x7f800000u;
  return is_nan ? std::bit_cast<float>(0x7fc00000u) : value;
}

// An fp32 master split into its bf16 weight `hi` and the 16 bits `lo` that complete it. `hi` is
// rounded half up in magnitude, so that (hi, lo) restores the exact master; rounding to nearest
// even would lose bits. A NaN is made canonical.
struct SplitMaster {
  uint16_t hi;
  uint16_t lo;
};

constexpr SplitMaster split_master(float master) {
  const uint32_t bits = std::bit_cast<uint32_t>(canonical(master));
  return {static_cast<uint16_t>((bits + 0x8000u) >> 16), static_cast<uint16_t>(bits & 0xffffu)};
}

constexpr float join_master(uint16_t hi, uint16_t lo) {
  const uint32_t top = static_cast<uint16_t>(hi - (lo >> 15));
  return std::bit_cast<float>((top << 16) | lo);
}

constexpr uint16_t to_bf16(float value) {
  return split_master(value).hi;
}

// Rounds to nearest, ties to even. Activations inside a segment are rounded this way.
constexpr uint16_t nearest_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(canonical(value));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

constexpr float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace strata

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

// Exact: 2^112 moves a half's exponent bias to a float's, and normalizes subnormals on the way. A
// NaN keeps its bits and becomes quiet, as in the processor's own conversion.
constexpr float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) {
    const uint32_t quiet = magnitude > 0x0f800000u ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | magnitude | 0x7f800000u | quiet);
  }
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Rounds to nearest, ties to even; infinite from 65520 on. A NaN is made canonical: 0x7e00.
constexpr uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7e00u;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (magnitude < 0x38800000u) {  // below 2^-14: the sum's last bit is 2^-24, the smallest half
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

}  // namespace strata

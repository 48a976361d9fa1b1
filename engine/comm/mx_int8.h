// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/base/payload.h"

// Payload::kMxInt8: 32 values as 33 bytes. Source of the format: OCP Microscaling Formats (MX)
// Specification 1.0, MXINT8.
namespace strata::comm {

inline constexpr int kMxBlock = 32;

// Values in fp32 that are sent together.
struct FloatBlock {
  float v[kMxBlock];
};

inline FloatBlock operator+(const FloatBlock& a, const FloatBlock& b) {
  FloatBlock sum;
  for (int i = 0; i < kMxBlock; ++i) sum.v[i] = a.v[i] + b.v[i];
  return sum;
}

// Value i is v[i] * 2^(exponent - 127 - 6); with exponent 255 all are NaN.
struct MxInt8Block {
  uint8_t exponent;
  int8_t v[kMxBlock];
};
static_assert(kMxBlock == block_of(Payload::kMxInt8) &&
              sizeof(MxInt8Block) == bytes_of(Payload::kMxInt8, kMxBlock));

// Bits that look random. All arithmetic is of 32 bits, of which compilers make vector instructions.
constexpr uint32_t noise_of(uint32_t bits) {
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15) * 0x846ca68bu;
  return bits ^ bits >> 16;
}

// Rounds each value up or down at random, to the nearer one more often, so that the mean of what
// values are rounded to is the mean of the values, also of those that are small beside others of
// their block. The noise is of the block's bits and the value's place: the same on every rank and
// in every call, another one where any value of the block is another. A block with a value that is
// not finite, or above 127 * 2^121, becomes NaN.
inline MxInt8Block to_mx_int8(const FloatBlock& from) {
  constexpr uint32_t kMagnitude = 0x7fffffffu, kNaN = 255, kGolden = 0x9e3779b9u;
  uint32_t bits[kMxBlock];
  uint32_t most = 0, sum = 0;
  for (int i = 0; i < kMxBlock; ++i) bits[i] = std::bit_cast<uint32_t>(from.v[i]);
  for (int i = 0; i < kMxBlock; ++i) most = std::max(most, bits[i] & kMagnitude);
  for (int i = 0; i < kMxBlock; ++i) sum += bits[i];
  // The largest is at most 127 steps: 1 63/64 of its power of two.
  const uint32_t exponent = (most + 0x1ffffu) >> 23;
  MxInt8Block to = {};
  if (exponent >= kNaN) {
    to.exponent = kNaN;
    return to;
  }
  constexpr uint32_t kLeast = 7;  // the scale is then the smallest normal number
  to.exponent = static_cast<uint8_t>(std::max(exponent, kLeast));
  const float steps = std::bit_cast<float>((260u - to.exponent) << 23);
  for (int i = 0; i < kMxBlock; ++i) {
    const uint32_t drawn = noise_of(bits[i] + sum + kGolden * static_cast<uint32_t>(i)) >> 16;
    const float noise = static_cast<float>(static_cast<int32_t>(drawn)) * 0x1p-16f;
    const float raised = from.v[i] * steps + noise + 128.0f;  // positive, so this rounds down:
    to.v[i] = static_cast<int8_t>(static_cast<int32_t>(raised) - 128);
  }
  return to;
}

inline FloatBlock from_mx_int8(const MxInt8Block& from) {
  const uint32_t scale = from.exponent == 255 ? 0x7fc00000u : (from.exponent - 6u) << 23;
  FloatBlock to;
  for (int i = 0; i < kMxBlock; ++i) {
    to.v[i] = static_cast<float>(from.v[i]) * std::bit_cast<float>(scale);
  }
  return to;
}

}  // namespace strata::comm

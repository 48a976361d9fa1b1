// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/units.h"

namespace strata {

// The format in which ranks send fp32 values to those that sum them, in fp32. All but kF32 change
// numbers. kMxInt8 is MXINT8 of the OCP's Microscaling Formats (MX) 1.0: 32 values that follow each
// other share a power of two, and each is an integer of 8 bits times that (engine/comm/mx_int8.h).
enum class Payload : uint8_t { kF32, kBF16, kMxInt8 };

// Values that are sent together; counts are multiples of it.
constexpr int64_t block_of(Payload payload) {
  return payload == Payload::kMxInt8 ? 32 : 1;
}

// What so many values take.
constexpr int64_t bytes_of(Payload payload, int64_t count) {
  switch (payload) {
    case Payload::kF32:
      return 4 * count;
    case Payload::kBF16:
      return 2 * count;
    case Payload::kMxInt8:
      return count / 32 * 33;
  }
  return 0;
}

inline const char* name_of(Payload payload) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8"};
  return kNames[static_cast<int>(payload)];
}

// How many of `count` values each of the ranks sums, but the last, which has what is left.
constexpr int64_t summed_part(int64_t count, int64_t ranks, Payload payload) {
  return round_up(ceil_div(count, ranks), block_of(payload));
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "engine/base/check.h"
#include "engine/base/rng.h"

namespace strata::data {

// A seeded permutation of 0 .. count-1 for each epoch, without a table: at(k) is the k-th item.
//
// A Feistel network over the next even number of bits, with Philox as its round function, permutes
// a range that contains [0, count). A value outside of [0, count) is permuted again until it is
// inside, which takes fewer than four turns on average. The orders of different epochs or seeds are
// independent.
class Shuffle {
 public:
  Shuffle(uint64_t seed, uint64_t epoch, int64_t count)
      : philox_(seed), epoch_(epoch), count_(static_cast<uint64_t>(count)) {
    STRATA_CHECK(count > 0);
    half_bits_ = (std::bit_width(count_ - 1) + 1) / 2;
    if (half_bits_ == 0) half_bits_ = 1;
  }

  int64_t at(int64_t index) const {
    auto value = static_cast<uint64_t>(index);
    STRATA_CHECK(value < count_);
    do value = turn(value);
    while (value >= count_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kStream = uint64_t{0x73687566}
                                      << 32;  // apart from other uses of the seed
  static constexpr uint64_t kRounds = 6;

  uint64_t turn(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (philox_.u64(right << 8 | round, kStream ^ epoch_) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  Philox philox_;
  uint64_t epoch_;
  uint64_t count_;
  int half_bits_;
};

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace strata {

// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"). The value depends on key and counter alone, never on how many were drawn
// before.
class Philox {
 public:
  explicit Philox(uint64_t seed)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  std::array<uint32_t, 4> at(uint64_t low, uint64_t high = 0) const {
    std::array<uint32_t, 4> x = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                                 static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
    std::array<uint32_t, 2> key = key_;
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53u} * x[0];
      const uint64_t b = uint64_t{0xCD9E8D57u} * x[2];
      x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(b),
           static_cast<uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(a)};
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    return x;
  }

  uint64_t u64(uint64_t low, uint64_t high = 0) const {
    const auto x = at(low, high);
    return (uint64_t{x[1]} << 32) | x[0];
  }

  // Uniform in [0, 1) with 53 bits.
  double uniform(uint64_t low, uint64_t high = 0) const {
    return static_cast<double>(u64(low, high) >> 11) * 0x1.0p-53;
  }

 private:
  std::array<uint32_t, 2> key_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "io/channel.h"
#include "tests/support/temporary_directory.h"

namespace strata::io {

inline constexpr uint64_t kMi = 1 << 20;

// Page-aligned memory, filled with bytes that depend on the seed.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(uint64_t bytes, uint64_t seed = 0)
      : bytes_(bytes), data_(static_cast<char*>(std::aligned_alloc(4096, bytes)), &std::free) {
    const Philox random(seed);
    for (uint64_t at = 0; at < bytes; at += 8) {
      const uint64_t word = random.u64(at);
      std::memcpy(data_.get() + at, &word, 8);
    }
  }
  char* data() const { return data_.get(); }
  uint64_t bytes() const { return bytes_; }
  bool operator==(const AlignedBuffer& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
  }

 private:
  uint64_t bytes_;
  std::unique_ptr<char, void (*)(void*)> data_;
};

// Runs the channel until nothing is in flight. False when that takes too long.
inline bool drain(Channel& channel, double limit_s = 60) {
  const double end_s = channel.now_s() + limit_s;
  while (channel.in_flight() > 0) {
    if (channel.now_s() > end_s) return false;
    if (channel.poll() == 0) channel.wait(0.1);
  }
  return true;
}

inline Transfer transfer_of(Direction direction, uint64_t address, const AlignedBuffer& buffer,
                            uint64_t tag) {
  Transfer transfer;
  transfer.direction = direction;
  transfer.address = address;
  transfer.bytes = buffer.bytes();
  transfer.data = buffer.data();
  transfer.tag = tag;
  return transfer;
}

// Submits one transfer, waits, and returns its error text; empty when it succeeded.
inline std::string run_one(Channel& channel, Direction direction, uint64_t address,
                           const AlignedBuffer& buffer, uint64_t tag) {
  Transfer transfer = transfer_of(direction, address, buffer, tag);
  channel.submit(&transfer);
  if (!drain(channel)) return "did not finish";
  return transfer.error ? transfer.error->what() : "";
}

}  // namespace strata::io

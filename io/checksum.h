// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

namespace strata::io {

// XXH3-64 of one block, seeded with what the block is (`tag`) and where it belongs (`address`), so
// that a misdirected or stale block has another checksum. Never 0.
uint64_t checksum_block(const void* data, uint64_t bytes, uint64_t tag, uint64_t address);

// The same of a block that is given a part at a time. `bytes` is the size of the whole block.
class ChecksumStream {
 public:
  ChecksumStream(uint64_t bytes, uint64_t tag, uint64_t address);
  ChecksumStream(ChecksumStream&&) noexcept;
  ChecksumStream& operator=(ChecksumStream&&) noexcept;
  ~ChecksumStream();

  void add(const void* data, uint64_t bytes);
  // The checksum of all that was added.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::io

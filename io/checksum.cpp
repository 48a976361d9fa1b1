// SPDX-License-Identifier: Apache-2.0
#include "io/checksum.h"

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // picks the vector width of this processor
#endif

#include <new>

namespace strata::io {
namespace {

uint64_t seed_of(uint64_t bytes, uint64_t tag, uint64_t address) {
  const uint64_t key[3] = {tag, address, bytes};
  return XXH3_64bits(key, sizeof key);
}

}  // namespace

uint64_t checksum_block(const void* data, uint64_t bytes, uint64_t tag, uint64_t address) {
  const uint64_t hash = XXH3_64bits_withSeed(data, bytes, seed_of(bytes, tag, address));
  return hash == 0 ? 1 : hash;
}

struct ChecksumStream::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* const xxh;
};

ChecksumStream::ChecksumStream(uint64_t bytes, uint64_t tag, uint64_t address)
    : state_(std::make_unique<State>()) {
  XXH3_64bits_reset_withSeed(state_->xxh, seed_of(bytes, tag, address));
}

ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::add(const void* data, uint64_t bytes) {
  XXH3_64bits_update(state_->xxh, data, bytes);
}

uint64_t ChecksumStream::value() const {
  const uint64_t hash = XXH3_64bits_digest(state_->xxh);
  return hash == 0 ? 1 : hash;
}

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#include "io/checksum.h"

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // picks the vector width of this processor
#endif

namespace strata::io {

uint64_t checksum_block(const void* data, uint64_t bytes, uint64_t tag, uint64_t address) {
  const uint64_t key[3] = {tag, address, bytes};
  const uint64_t hash = XXH3_64bits_withSeed(data, bytes, XXH3_64bits(key, sizeof key));
  return hash == 0 ? 1 : hash;
}

}  // namespace strata::io

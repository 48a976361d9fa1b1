// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace strata::io {

// XXH3-64 of one block, seeded with what the block is (`tag`) and where it belongs (`address`), so
// that a misdirected or stale block has another checksum. Never 0.
uint64_t checksum_block(const void* data, uint64_t bytes, uint64_t tag, uint64_t address);

}  // namespace strata::io

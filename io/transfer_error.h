// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/error.h"
#include "io/ring.h"
#include "io/volume.h"

namespace strata::io {

// What a transfer carries when it failed: file, offset, cause and advice, in the words of
// engine/base/error.h.

// A request that the ring gave back with another outcome than kDone.
Error request_error(const RingRequest& request, const ScratchFile& file, uint64_t address);
// A block that was read and is not what was written. `request_address` is where the request began.
Error checksum_error(const RingRequest& request, const ScratchFile& file, uint64_t request_address,
                     uint64_t tag, const Volume::Mismatch& wrong);
// A transfer that was not started, because a write to its file failed earlier.
Error poisoned_error(Direction direction, const ScratchFile& file, uint64_t offset);
// A transfer that was not started, because nothing of its channel moves any more.
Error stuck_error(Direction direction, const ScratchFile& file, uint64_t offset);

}  // namespace strata::io

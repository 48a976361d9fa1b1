// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/error.h"
#include "io/ring.h"
#include "io/volume.h"

namespace strata::io {

// The errors of failed transfers: file, offset, cause and advice, in the format of
// engine/base/error.h.

// For a request whose outcome is not kDone.
Error request_error(const RingRequest& request, const ScratchFile& file, uint64_t address);
// For a block that is not what was written. `request_address` is where the request began.
Error checksum_error(const RingRequest& request, const ScratchFile& file, uint64_t request_address,
                     uint64_t tag, const Volume::Mismatch& wrong);
// For a transfer that was not started, because a write to its file failed earlier.
Error poisoned_error(Direction direction, const ScratchFile& file, uint64_t offset);
// For a transfer that was not started, because every request of its channel hangs.
Error stuck_error(Direction direction, const ScratchFile& file, uint64_t offset);

}  // namespace strata::io

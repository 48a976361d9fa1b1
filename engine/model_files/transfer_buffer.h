// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/model/spec.h"

namespace strata::model {

// What loading or exporting has in flight: enough for a drive, little beside the least run.
inline constexpr int64_t kTransferBufferBytes = 24 * kMiB;

// The memory that loading or exporting such a model takes for its buffers; never both at once. A
// model that is read in less time than it takes to set them up gets none.
int64_t transfer_buffer_bytes(const ModelSpec& spec);

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/model/spec.h"

namespace strata::model {

// The bytes that loading or exporting has in flight: enough for a drive, and small compared with
// the smallest run.
inline constexpr int64_t kTransferBufferBytes = 24 * kMiB;

// The memory that loading or exporting a model takes for its buffer; the two never happen at once.
// 0 for a model so small that setting up the buffer would take longer than reading it.
int64_t transfer_buffer_bytes(const ModelSpec& spec);

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/checkpoint/checkpoint.h"

namespace strata::checkpoint {

// The files that a run will have on a disk.
struct DiskUse {
  HeldCheckpoints held;
  int64_t older_model_bytes = 0;  // removed when the run begins
  int64_t checkpoint_bytes = 0;   // of each checkpoint
  int64_t checkpoint_count = 0;   // that will be written; fewer may be kept
  int64_t keep = 1;
  int64_t model_bytes = 0;    // exported at the end
  int64_t scratch_bytes = 0;  // until the export
};

// The most free space that the run needs at any time, with older checkpoints deleted on the way.
int64_t free_bytes_needed(const DiskUse& use);

// The bytes of all files below `path`; 0 when there are none.
int64_t bytes_below(const std::string& path);

}  // namespace strata::checkpoint

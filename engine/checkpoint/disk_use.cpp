// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/disk_use.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/blocking_call.h"

namespace strata::checkpoint {

int64_t bytes_below(const std::string& path) {
  const BlockingCall call("look at", path);
  int64_t bytes = 0;
  std::error_code ignored;  // files that cannot be seen are not counted
  for (std::filesystem::recursive_directory_iterator at(path, ignored), end; at != end;
       at.increment(ignored)) {
    std::error_code none;
    if (at->is_regular_file(none)) bytes += static_cast<int64_t>(at->file_size(none));
  }
  return bytes;
}

// The largest of three moments: while the first checkpoint is written, while the last one is
// written, and at the end.
int64_t free_bytes_needed(const DiskUse& use) {
  const int64_t held = use.held.kept;
  const auto more_than_held = [&](int64_t checkpoints) {
    return (std::min(use.keep, checkpoints) - held) * use.checkpoint_bytes - use.held.aside_bytes;
  };
  const int64_t count = use.checkpoint_count;
  int64_t most = use.model_bytes + (count > 0 ? more_than_held(held + count) : 0);
  if (count > 0) most = std::max(most, use.checkpoint_bytes + use.scratch_bytes);
  if (count > 1) {
    most =
        std::max(most, more_than_held(held + count - 1) + use.checkpoint_bytes + use.scratch_bytes);
  }
  return std::max<int64_t>(0, most - use.held.leftover_bytes - use.older_model_bytes);
}

}  // namespace strata::checkpoint

// SPDX-License-Identifier: Apache-2.0
// The room on disks that a run needs.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/disk_use.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/model_files/file.h"
#include "engine/model_files/model_writer.h"
#include "engine/session/training.h"

namespace strata::session {
namespace {

// The bytes of scratch on the file system of `directory`.
int64_t scratch_beside(const std::string& directory, const config::Options& options,
                       const train::RunPlan& plan) {
  int64_t scratch = 0;
  for (const plan::Plan& rank : plan.ranks) {
    scratch += rank.arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)];
  }
  struct stat out = {};
  int64_t beside = 0;
  for (const std::string& path : options.nvme) {
    const BlockingCall call("look at", path);
    struct stat drive = {};
    const bool same = stat(directory.c_str(), &out) == 0 && stat(path.c_str(), &drive) == 0 &&
                      out.st_dev == drive.st_dev;
    if (same) beside += scratch / static_cast<int64_t>(options.nvme.size());
  }
  return beside;
}

}  // namespace

// Checks the free space for what the run will write: the model, the checkpoints, and scratch if it
// shares the file system.
void Training::check_space() const {
  const std::string directory = model::nearest_directory(options_.out);
  const auto left = static_cast<double>(std::max<int64_t>(0, steps_ - resumed_.step));
  constexpr double kMost = 1e9;
  const double of_evaluations =
      options_.keep_best ? left / static_cast<double>(options_.eval_every) : 0;
  checkpoint::DiskUse use;
  use.held =
      checkpoint::held_checkpoints(options_.out + "/checkpoints", resumed_.step, resumed_.run);
  use.older_model_bytes = checkpoint::bytes_below(options_.out + "/model");
  use.checkpoint_bytes = train::checkpoint_bytes(plan_);
  use.checkpoint_count = static_cast<int64_t>(
      std::min(kMost, std::ceil(left / train::steps_per_checkpoint(plan_) + of_evaluations)));
  const int64_t file_bytes = checkpoint::state_file_bytes(plan_.spec_of(0), plan_.input.recipe,
                                                          plan_.input.mesh.state_shards());
  if (file_bytes > facts_.limits.file_bytes.value_or(file_bytes)) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("checkpoints: a file of {} is larger than the limit of file sizes here, {} "
                    "(raise it: ulimit -f unlimited)",
                    format_bytes(file_bytes), format_bytes(*facts_.limits.file_bytes)));
  }
  use.keep = options_.keep_checkpoints + (options_.keep_best ? 1 : 0);
  use.model_bytes = model::export_bytes(*model_, checkpoint::dtype_of(options_.export_dtype));
  use.scratch_bytes = scratch_beside(directory, options_, plan_);
  model::require_free_space(directory, checkpoint::free_bytes_needed(use),
                            "checkpoints, the model and scratch");
}

}  // namespace strata::session

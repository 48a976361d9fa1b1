// SPDX-License-Identifier: Apache-2.0
// The room on disks that a run needs.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

bool are_on_one_drive(const std::string& one, const std::string& other) {
  const BlockingCall call("look at", other);
  struct stat first = {}, second = {};
  return stat(one.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev;
}

// The bytes of scratch on the file system of `directory`.
int64_t scratch_beside(const std::string& directory, const config::Options& options,
                       const train::RunPlan& plan) {
  int64_t scratch = 0;
  for (const plan::Plan& rank : plan.ranks) {
    scratch += rank.arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)];
  }
  int64_t beside = 0;
  for (const std::string& path : options.nvme) {
    if (are_on_one_drive(directory, path)) {
      beside += scratch / static_cast<int64_t>(options.nvme.size());
    }
  }
  return beside;
}

}  // namespace

// Checks the free space for what the run will write: the model, the checkpoints, which may be on
// another drive, and scratch if it shares the file system.
void Training::check_space() const {
  const std::string directory = model::nearest_directory(options_.out);
  const auto left = static_cast<double>(std::max<int64_t>(0, steps_ - resumed_.step));
  constexpr double kMost = 1e9;
  const bool keeps_best = options_.keep_best && options_.eval_every > 0;
  const double of_evaluations = keeps_best ? left / static_cast<double>(options_.eval_every) : 0;
  checkpoint::DiskUse use;
  use.held =
      checkpoint::held_checkpoints(options_.out + "/checkpoints", resumed_.step, resumed_.run);
  // Where a damaged checkpoint is passed over, the model stays until this run has written its own.
  if (!resumed_.passes_over) {
    use.older_model_bytes = checkpoint::bytes_below(options_.out + "/model");
  }
  use.older_model_bytes +=
      checkpoint::bytes_below(model::leftover_of_export(options_.out + "/model"));
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
  use.keep = options_.keep_checkpoints + (keeps_best ? 1 : 0);
  use.model_bytes = model::export_bytes(*model_, checkpoint::dtype_of(options_.export_dtype));
  const std::string checkpoints = model::nearest_directory(options_.out + "/checkpoints");
  use.scratch_bytes = scratch_beside(checkpoints, options_, plan_);
  if (are_on_one_drive(directory, checkpoints)) {
    model::require_free_space(directory, checkpoint::free_bytes_needed(use),
                              "checkpoints, the model and scratch");
    return;
  }
  const int64_t older_bytes = std::exchange(use.older_model_bytes, 0);
  const int64_t model_bytes = std::exchange(use.model_bytes, 0);
  model::require_free_space(checkpoints, checkpoint::free_bytes_needed(use),
                            "checkpoints and scratch");
  model::require_free_space(directory, model_bytes - older_bytes, "model");
}

}  // namespace strata::session

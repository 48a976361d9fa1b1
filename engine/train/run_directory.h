// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/config/json.h"
#include "io/scratch_file.h"

namespace strata::train {

// The directory that a run writes: run.json, plan.txt, metrics.jsonl, checkpoints/, model/; held by
// run.lock while this object lives.
//
// Guarantees: a directory that holds anything but a run is refused and left as it is; of two runs
// in one directory the second is refused, the first one's process and host named. What it creates
// is the user's own (0700, 0600). Failure: Error (kConfig, kIo, kDoesNotFit). With ranks in several
// processes only rank 0 has one.
class RunDirectory {
 public:
  // Creates the directory (its parents too) or takes an existing run's. `owner` goes into the lock
  // file for the message: "strata train".
  RunDirectory(const std::string& path, const std::string& owner);

  // What the constructor would refuse, without creating or locking anything.
  static void check(const std::string& path);

  // Whether `directory` is checkpoints/ or model/ of a run, which removes what is in them.
  static bool is_folder_of_run(const std::string& directory);

  // Whether a run began here before: run.json is there.
  bool has_run() const { return has_run_; }

  // run.json of the run before; nothing where there was none.
  std::optional<config::Json> read_run() const;
  // Resolved options, machine and versions, replaced in one rename.
  void write_run(const config::Json& run);
  void write_plan(std::string_view text);

  const std::string& path() const { return path_; }
  std::string checkpoints() const;
  std::string model() const;
  std::string metrics() const { return path_ + "/metrics.jsonl"; }

 private:
  void replace_file(const std::string& name, std::string_view text) const;

  // Constant after construction
  const std::string path_;

  bool has_run_ = false;
  std::optional<io::DirectoryLock> lock_;
};

}  // namespace strata::train

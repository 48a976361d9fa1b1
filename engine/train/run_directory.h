// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/config/json.h"
#include "io/scratch_file.h"

namespace strata::train {

// Names of files in it.
inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kPlanTextFile = "plan.txt";
inline constexpr const char* kPlanFile = "plan.json";        // plan_record()
inline constexpr const char* kSummaryFile = "summary.json";  // summary_json(), when it has ended
inline constexpr const char* kLanesFile = "lanes.json";      // of a step that was traced
inline constexpr const char* kTraceFile = "trace.json";      // see Trace
inline constexpr const char* kTracePartFile = "trace.json.tmp";
inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kLockFile = "run.lock";

// The directory that a run writes: run.json, plan.txt, plan.json, metrics.jsonl, summary.json,
// lanes.json, trace.json, checkpoints/, model/. The object locks it with run.lock.
//
// Guarantees: a directory with anything but a run is refused and left unchanged. A second run in
// the same directory is refused with the process and host of the first. Only the user can access
// what it creates (0700, 0600). Failure: Error (kConfig, kIo, kDoesNotFit). With ranks in several
// processes, only rank 0 has a RunDirectory.
class RunDirectory {
 public:
  // Creates the directory and its parents, or opens that of an existing run. `owner`, such as
  // "strata train", is written to the lock file for messages.
  RunDirectory(const std::string& path, const std::string& owner);

  // Throws what the constructor would throw. Creates and locks nothing.
  static void check(const std::string& path);

  // Whether `directory` is checkpoints/ or model/ of a run; the run removes files in these.
  static bool is_folder_of_run(const std::string& directory);

  // Whether `directory` is that of a run. Throws Error (kConfig) when this user may not know.
  static bool is_run(const std::string& directory);

  // Whether a run began here before, that is, run.json exists.
  bool has_run() const { return has_run_; }

  // The run.json of the earlier run; nullopt when there was none.
  std::optional<config::Json> read_run() const;
  // Writes run.json (resolved options, machine, versions) in one rename.
  void write_run(const config::Json& run);
  // Writes another file of the run in one rename. Readers see the old text or the new one.
  void write(const char* name, std::string_view text) const;
  void remove(const char* name) const;

  const std::string& path() const { return path_; }
  std::string checkpoints() const;
  std::string model() const;
  std::string metrics() const { return path_ + "/" + kMetricsFile; }
  std::string events() const { return path_ + "/tensorboard"; }

 private:
  // Constant after construction
  const std::string path_;

  bool has_run_ = false;
  std::optional<io::DirectoryLock> lock_;
};

}  // namespace strata::train

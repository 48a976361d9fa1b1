// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/json.h"

namespace strata::report {

// A step of metrics.jsonl. What the file has as null is NaN.
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tokens = 0;
  double step_s = 0;
  std::vector<double> stall_s;  // by RunRecord::causes
  double read_bytes = 0;        // of rank 0, from drives
  double write_bytes = 0;
  double time_s = 0;  // since 1970
  bool skipped = false;

  double stall_total_s() const;
};

struct SampleRecord {
  std::string prompt;
  std::string text;  // that follows it
};

struct EvaluationRecord {
  int64_t step = 0;
  double loss = 0;
  double time_s = 0;
  std::vector<SampleRecord> samples = {};
};

// What a run directory holds. Files that older runs and runs under way lack are null.
struct RunRecord {
  std::string path;
  config::Json run;      // run.json
  config::Json plan;     // plan.json
  config::Json summary;  // summary.json
  config::Json lanes;    // lanes.json
  std::vector<std::string> causes;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  bool is_locked = false;       // a process has it, or was killed
  std::optional<int64_t> best;  // the step of the checkpoint that RUN/best names

  // A number of a file by path: number(plan, {"run", "steps"}); nullopt when it is not there.
  static std::optional<double> number(const config::Json& json,
                                      std::initializer_list<const char*> path);
  std::string option(const char* name) const;  // as text; empty when it is not given
  double ranks() const;
  std::optional<double> planned_steps() const;
};

// Reads a run's directory; takes no lock and changes nothing, so the run may be under way. A torn
// last line of metrics.jsonl is left out. Throws Error: kConfig when it is no run or a file cannot
// be read, kCorrupt for a line that is not a record. Memory: about 250 bytes a step.
RunRecord read_run(const std::string& path);

}  // namespace strata::report

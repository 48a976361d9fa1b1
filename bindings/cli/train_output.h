// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/train/metrics.h"
#include "engine/train/metrics_progress.h"
#include "engine/train/work_progress.h"

namespace strata::cli {

// The output of `strata train`: tables, progress and a summary.
//
// With --json, standard output gets one JSON object with the summary, and everything else goes to
// standard error. When the reader of standard output is gone (`| head`), the run continues; this is
// reported once on standard error, which then gets the summary. Threads: one. Failure: never
// throws.
class TrainOutput {
 public:
  explicit TrainOutput(bool json) : json_(json) {}

  void print(const std::string& text);
  void conclude(const std::string& text, const config::Json& json);

  // The file descriptor that print() writes to.
  int descriptor() const;

 private:
  const bool json_;
  bool lost_ = false;
};

// Prints progress by step.
class Reporter {
 public:
  Reporter(TrainOutput& output, int64_t first_step, int64_t steps);

  void step(const train::StepMetrics& step);
  void evaluated(int64_t step, double loss);
  void work(std::string_view what, int64_t done, int64_t total);
  void finish() { output_.print(progress_.finish()); }

 private:
  TrainOutput& output_;
  train::ProgressLine progress_;
  train::WorkLine work_;
};

}  // namespace strata::cli

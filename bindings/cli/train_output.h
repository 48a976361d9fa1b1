// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/train/metrics.h"
#include "engine/train/metrics_progress.h"

namespace strata::cli {

// What `strata train` says: tables and progress while it runs, and how it ended.
//
// With --json standard output holds one JSON object, of the end, and the rest goes to standard
// error. When the reader of standard output is gone (`| head`), the run goes on: that is said once
// on standard error, where the end is told then. Threads: one. Failure: none.
class TrainOutput {
 public:
  explicit TrainOutput(bool json) : json_(json) {}

  void print(const std::string& text);
  void conclude(const std::string& text, const config::Json& json);

  // Where print() writes.
  int descriptor() const;

 private:
  const bool json_;
  bool lost_ = false;
};

// Progress by step.
class Reporter {
 public:
  Reporter(TrainOutput& output, int64_t first_step, int64_t steps);

  void step(const train::StepMetrics& step);
  void evaluated(int64_t step, double loss);
  void finish() { output_.print(progress_.finish()); }

 private:
  TrainOutput& output_;
  train::ProgressLine progress_;
};

}  // namespace strata::cli

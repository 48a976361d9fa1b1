// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/train/run_advice.h"
#include "engine/train/trainer.h"

namespace strata::cli {

// A finished run.
struct Outcome {
  const config::Options& options;
  const config::Json& deepspeed;  // what became of that file, or null
  const train::RunPlan& plan;
  const train::TrainResult& result;
  const std::vector<std::string>& export_notes;  // about the exported model, if there is one
  double total_s = 0;
  std::string resuming;  // the command that goes on when it was stopped
  train::RunAdvice advice;
};

// The summary of a run, as text and as JSON: loss, time by cause, bytes, prediction against
// measurement, peak memory, and the next command to try.
std::string train_summary(const Outcome& outcome);
config::Json train_summary_json(const Outcome& outcome);

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/train/trainer.h"

namespace strata::cli {

// A run that is over.
struct Outcome {
  const config::Options& options;
  const config::Json& deepspeed;  // what became of that file, or null
  const train::RunPlan& plan;
  const train::TrainResult& result;
  const std::vector<std::string>& export_notes;  // of the model that it left, if it did
  double total_s = 0;
};

// What happened in a run, for its end: loss, time by cause, bytes, prediction against measurement,
// peak memory, and the next command to try; as text and as JSON.
std::string train_summary(const Outcome& outcome);
config::Json train_summary_json(const Outcome& outcome);

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/train/trainer.h"

namespace strata::cli {

// What happened in a run, for its end: loss, time by cause, bytes, prediction against measurement,
// peak memory, and the next command to try; as text and as JSON.
std::string train_summary(const config::Options& options, const train::RunPlan& plan,
                          const train::TrainResult& result, double total_s);
config::Json train_summary_json(const config::Options& options, const train::RunPlan& plan,
                                const train::TrainResult& result, double total_s);

}  // namespace strata::cli

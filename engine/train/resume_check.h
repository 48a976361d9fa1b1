// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/train/data.h"

// Whether a run that goes on from a checkpoint is the run that made it.
namespace strata::train {

// What is different now, each as "--seed 2 (the checkpoint: 1)".
struct ResumeChanges {
  std::vector<std::string> breaking;  // the same steps would see other batches or other numbers
  std::vector<std::string> allowed;   // learning rate, length, budgets: what a user may change
};

// What a manifest keeps about a run, and is compared with.
config::Json about_run(const config::Options& options, const Dataset& data);

// `about` is a manifest's; what it does not say counts as equal.
ResumeChanges changed_options(const config::Json& about, const config::Options& options);

// The changes of the data alone, which has to be read for it.
ResumeChanges changed_data(const config::Json& about, const Dataset& data);

}  // namespace strata::train

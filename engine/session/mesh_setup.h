// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/options.h"
#include "engine/model_files/model_directory.h"
#include "engine/train/job_terms.h"
#include "engine/train/run_plan.h"

namespace strata::session {

// With --mesh auto, chooses the mesh of a run (train::choose_mesh) and sets its options; `facts`
// has the machine's figures. Returns the line about it, else an empty text.
std::string settle_mesh(const model::ModelDirectory& model, train::RunFacts facts,
                        config::Options& options);

// The same on other ranks: takes what rank 0 has chosen.
void take_mesh(const train::JobTerms& terms, config::Options& options);

}  // namespace strata::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/options.h"
#include "engine/session/setup.h"

// What commands share that run a model without training it.
namespace strata::session {

// The options with a checkpoint where --resume is given. These commands have no run directory of
// their own.
config::Options with_named_checkpoint(const config::Options& options);

train::RunFacts inference_facts(const config::Options& options);

// A verified plan. `held_bytes`: memory outside of it, of tokens or a tokenizer.
train::RunPlan inference_plan(const config::Options& options, const model::ModelDirectory& model,
                              train::RunFacts facts, int64_t held_bytes);

}  // namespace strata::session

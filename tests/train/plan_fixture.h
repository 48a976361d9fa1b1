// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/architecture.h"
#include "engine/train/plan_compare.h"
#include "engine/train/plan_elsewhere.h"

// Plans for the machines that come with the source.
namespace strata::train {

inline config::Machine profile(const std::string& name) {
  return config::read_machine(STRATA_MACHINES "/" + name + ".toml");
}

inline model::Architecture llama(int64_t layers, int64_t hidden) {
  model::Architecture at;
  at.model_type = "llama";
  at.layers = layers;
  at.hidden = hidden;
  at.heads = hidden / 128;
  at.kv_heads = at.heads / 4;
  at.head_size = 128;
  at.feed_forward = hidden * 7 / 2;
  at.vocabulary = 32000;
  at.max_position = 8192;
  return at;
}

inline config::Options bf16_options(int64_t ranks) {
  config::Options options;
  options.recipe = Recipe::kBf16;
  options.sequence_length = 2048;
  options.accumulate = 2;
  options.ranks = ranks;
  options.nvme = {"/of/that/machine"};
  return options;
}

inline PlanBasis basis_of(const config::Machine& machine, const model::Architecture& architecture,
                          config::Options options) {
  RunFacts facts;
  plan_elsewhere(machine, options, facts);
  return {model::build_spec(architecture), options, facts};
}

inline RunPlan planned(const PlanBasis& basis) {
  return plan_run(basis.spec, basis.options, basis.facts);
}

inline RunPlan planned(const config::Machine& machine, const model::Architecture& architecture,
                       const config::Options& options) {
  return planned(basis_of(machine, architecture, options));
}

}  // namespace strata::train

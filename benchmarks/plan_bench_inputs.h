// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/model/spec.h"
#include "engine/plan/input.h"
#include "engine/plan/rates.h"

namespace strata::bench {

// What is planned: a model, a machine of examples/machines, and how a step uses them.
struct Question {
  const char* name;
  const char* model;                   // a row of the table of models
  const char* machine = "h200-8nvme";  // a profile
  int64_t host_gib = 0;                // of arenas; 0: 0.85 of what the machine has
  int64_t device_gib = 0;              // 0: 0.9 of what the device has
  bool one_tier = false;               // compute on the host's memory, whatever the machine has
  bool nvme = true;
  int64_t rows = 4;
  int64_t length = 4096;
  int micro_batches = 8;
  Recipe recipe = Recipe::kBf16;
  plan::OptimizerMode mode = plan::OptimizerMode::kDeferred;
  int ranks = 1;
  int ranks_on_node = 1;
  int zero_stage = 3;
  int rank = 0;
  int frozen_layers = 0;  // the lowest ones, with the embedding
  bool inference = false;
};

// The three whose time is a goal, then the 30 whose predicted step times are kept.
std::span<const Question> timed_questions();
std::span<const Question> kept_questions();

// The same, ready for the planner. The input points into the spec.
struct Prepared {
  std::unique_ptr<model::ModelSpec> spec;
  plan::PlanInput input;
  plan::Rates rates;
};
Prepared prepare(const Question& question, const std::string& machines);

}  // namespace strata::bench

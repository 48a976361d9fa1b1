// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/session/setup.h"
#include "engine/train/inference.h"
#include "engine/train/plan_compare.h"

// Uses of a model besides training: its plan, its loss on data, and exporting a
// checkpoint as a model. All throw Error; all mistakes in what the options name are reported at
// once.
namespace strata::session {

// The plan of the run that `options` describe, from config.json without weights; allocates no
// arenas. With --data, its tokens are counted as in training. The profile of --machine replaces
// this machine's memory, devices and drives. Threads: one.
class PlanRequest {
 public:
  // `cache_directory` keeps machine profiles and tokens; may be empty.
  PlanRequest(const config::Options& options, const std::string& cache_directory);

  // With --mesh auto, plans the meshes and takes the fastest; see train::choose_mesh(). Else empty.
  std::vector<train::Compared> choose_mesh(const train::Planning& planning);
  train::RunPlan plan();  // of rank 0, verified
  // Plans other ways to run too, also when this one does not fit. See train::compare_plans().
  std::vector<train::Compared> compare(const train::Planning& planning);

 private:
  void measure();

  const std::string cache_directory_;
  train::PlanBasis basis_;
  std::optional<config::Machine> profile_;
  std::optional<config::Machine> other_;  // to compare with
  bool is_measured_ = false;
};

// The mean loss over --data, or over the part of --eval-fraction if that is given. Throws
// Error{kNumeric} when the loss is not finite.
train::Inference::Loss evaluate_model(const config::Options& options,
                                      const std::string& cache_directory,
                                      const train::WorkProgress& progress);

struct Exported {
  int64_t step = 0;                // of the checkpoint
  std::vector<std::string> notes;  // sentences about how its weights changed
};
// Writes the weights of the checkpoint of --resume as the model directory --out, with the names and
// types of --model.
Exported export_model(const config::Options& options);

}  // namespace strata::session

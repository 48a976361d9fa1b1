// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/resume.h"
#include "engine/session/setup.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"

namespace strata::session {

// Who watches and stops a run; called on the thread of rank 0, between steps. Any may be empty.
struct TrainingEvents {
  std::function<void(const train::StepMetrics&)> step = nullptr;
  std::function<void(int64_t step, double loss)> evaluated = nullptr;
  // All steps are done or the run was stopped; where it was not, the model is exported next.
  std::function<void()> trained = nullptr;
  const std::atomic<bool>* stop = nullptr;  // see train::TrainJob
  std::atomic<train::RunPhase>* phase = nullptr;
};

// One run of `strata train`, from its options to the model that it leaves.
//
// Construction opens, checks, measures and plans: all that can be refused is refused, all mistakes
// of what options name at once, and nothing is created or changed. run() trains to the end or until
// stopped; --out is this run's from the moment when its state is loaded. Threads: one. Failure:
// Error. `options` must outlive it.
class Training {
 public:
  // `cache_directory`: of machine profiles; may be empty.
  Training(const config::Options& options, const std::string& cache_directory);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  const train::RunPlan& plan() const { return plan_; }
  const std::string& plan_text() const { return plan_text_; }
  const std::string& data_description() const { return data_->description(); }
  int64_t steps() const { return steps_; }
  const Resumed& resumed() const { return resumed_; }
  // What weights become in the model that run() makes: complete sentences.
  const std::vector<std::string>& export_notes() const { return export_notes_; }
  // Whether a step is left to do.
  bool trains() const { return resumed_.path.empty() || resumed_.step < steps_; }
  // The longest time between two checkpoints; 0: they come by steps.
  double checkpoint_every_s() const;

  // Once.
  train::TrainResult run(const TrainingEvents& events);

 private:
  void open_places(std::optional<config::Machine>& profile);
  void require_fit(train::RunFacts facts) const;
  void check_space() const;
  config::Json run_json() const;
  bool has_model() const;
  void begin();
  void export_model(const std::string& checkpoint) const;
  train::TrainResult finish_without_steps();
  train::TrainResult train_steps(const TrainingEvents& events);

  // Constant after construction
  const config::Options& options_;
  std::unique_ptr<model::ModelDirectory> model_;
  std::unique_ptr<data::Dataset> data_;
  train::RunFacts facts_;
  train::RunPlan plan_;
  std::string plan_text_;
  Resumed resumed_;
  int64_t steps_ = 0;
  bool has_its_model_ = false;
  std::vector<std::string> export_notes_;

  std::optional<train::RunDirectory> directory_;  // where a run was before, or once this one began
  std::optional<train::MetricsWriter> metrics_;
};

}  // namespace strata::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "engine/checkpoint/frozen_source.h"
#include "engine/checkpoint/model_source.h"
#include "engine/comm/group.h"
#include "engine/data/batch.h"
#include "engine/train/best_checkpoint.h"
#include "engine/train/checkpoint_session.h"
#include "engine/train/executor_options.h"
#include "engine/train/schedule.h"
#include "engine/train/trace.h"
#include "engine/train/trainer.h"

namespace strata::train {

// One rank's part of a run. Steps overlap: the next step is submitted before the last one is
// awaited.
class RankTrainer {
 public:
  RankTrainer(const TrainJob& job, int rank, const RankGroups& groups);
  void run(TrainResult& result);

 private:
  // A submitted step; a step without a target token has no instance.
  struct Flight {
    int64_t step = 0;
    std::unique_ptr<exec::Instance> instance;
  };

  bool leads() const { return rank_ == 0; }
  // The tensor ranks of a group compute the same losses, so the first one's count.
  bool counts_losses() const { return plan_.mesh.tensor_rank() == 0; }
  void load();
  void prepare_trace();
  bool catch_up(TrainResult& result);
  void train_steps(TrainResult& result);
  void submit(int64_t step);
  void finish(TrainResult& result);
  void settle(TrainResult& result);
  double add_early_update(exec::Instance& step);
  void record(const std::function<void()>& write);
  void skip(int64_t step, TrainResult& result);
  bool evaluate(int64_t step, TrainResult& result);
  void bring_logits(exec::Instance& pass) const;
  std::optional<std::vector<std::vector<int32_t>>> sample();
  bool judge(int64_t step, bool saved, TrainResult& result);
  void checkpoint(int64_t step, TrainResult& result);
  void start(int64_t first_step);
  void sum_up(TrainResult& result) const;
  double sum_over_ranks(double value) const;
  bool any_rank(bool asks) const;
  bool is_evaluated(int64_t step) const;
  bool must_stop() const;
  bool is_overdue() const;
  void enter(RunPhase phase) const;
  int64_t nvme_bytes_read(const exec::Instance& instance) const;
  StepMetrics metrics_of(const Flight& flight, double loss, double step_s) const;

  const TrainJob& job_;
  const config::Options& options_;
  const plan::Plan& plan_;
  const model::ModelSpec& spec_;  // this rank's slice
  const int rank_;
  const RankGroups groups_;
  CheckpointSession checkpoints_;
  BestCheckpoint best_;
  bool lacks_evaluation_ = false;  // of the step from which the run goes on
  const int64_t file_bytes_;       // that a step reads
  const data::Batches batches_;
  const int64_t steps_;
  const Schedule schedule_;
  checkpoint::ModelSource from_model_;
  checkpoint::FrozenSource frozen_;  // uses from_model_ after loading, on the executor's read lane
  std::deque<Flight> flying_;
  std::unique_ptr<exec::Instance> early_update_;  // that the next step need not do
  std::optional<Trace> trace_;                    // if any step is traced
  std::unique_ptr<exec::Executor> executor_;      // destroyed before the objects that its lanes use
  std::vector<double> step_times_;
  double last_end_s_ = 0;
  double last_checkpoint_s_ = 0;
  int64_t done_step_ = 0;
  std::exception_ptr unrecorded_;  // why a record of a step was not written
};

}  // namespace strata::train

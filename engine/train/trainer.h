// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/frozen_fingerprint.h"
#include "engine/config/options.h"
#include "engine/data/data.h"
#include "engine/exec/executor.h"
#include "engine/memory/process_memory.h"
#include "engine/model_files/model_directory.h"
#include "engine/train/best_checkpoint.h"
#include "engine/train/metrics.h"
#include "engine/train/rank_groups.h"
#include "engine/train/run_plan.h"
#include "engine/train/sample_texts.h"
#include "engine/train/work_progress.h"

namespace strata::train {

// Callbacks during a run, called on rank 0's thread between steps. Any may be empty.
struct TrainEvents {
  // The state is loaded, everything is allocated, and `first_step` follows. From here on the run
  // changes files in its directory. Every process of the run calls it.
  std::function<void(int64_t first_step)> started;
  std::function<void(const StepMetrics&)> step;
  // `samples`: the tokens that follow each of the job's prompts; empty without samples.
  std::function<void(int64_t step, double loss, const std::vector<std::vector<int32_t>>& samples)>
      evaluated;
  WorkProgress work;  // loading, evaluating, checkpoints; on another thread while this one waits
  std::function<void(int64_t step, const std::string& path)> checkpointed;
};

// The phases of a run.
enum class RunPhase : uint8_t { kLoad, kStep, kEvaluation, kCheckpoint, kExport };

// One training run. The caller owns everything; it must outlive the call.
struct TrainJob {
  const config::Options* options = nullptr;
  const RunPlan* plan = nullptr;
  const model::ModelDirectory* model = nullptr;
  const data::Dataset* data = nullptr;
  checkpoint::FrozenFingerprint frozen;    // of the plan's spec, for checkpoints
  std::string out;                         // run directory, locked by the caller
  std::string run;                         // the run's nonce, for checkpoints
  std::string arithmetic;                  // of rank 0 (exec::arithmetic_of), for checkpoints
  std::string resume_from;                 // a checkpoint; empty: from the model
  const SamplePrompts* samples = nullptr;  // of --sample-prompts; rank 0's are used
  double checkpoint_every_s = 0;  // longest time between two, by rank 0's clock; 0: no limit
  // When set to true, the run finishes the steps that it has begun, two at most, or ends an
  // evaluation at the next batch, writes a checkpoint and stops.
  const std::atomic<bool>* stop = nullptr;
  std::atomic<RunPhase>* phase = nullptr;  // written by rank 0; may be null
  TrainEvents events;
  // The groups of this process's rank, where ranks are processes; empty where all ranks are threads
  // of this process.
  RankGroups groups;
};

struct TrainResult {
  int64_t first_step = 1;
  int64_t last_step = 0;  // completed and checkpointed
  int64_t planned_steps = 0;
  bool stopped = false;          // by `stop`, before the last planned step
  int64_t skipped_steps = 0;     // without a target token: they update nothing
  int64_t overflowed_steps = 0;  // that updated nothing either
  double loss_scale = 1;         // of the step that would come next
  double first_loss = 0;
  double last_loss = 0;
  std::optional<double> held_out_loss;
  bool stopped_early = false;        // by --patience
  HeldOutLosses held_out;            // of the whole run, as rank 0 knows them
  std::optional<int64_t> best_step;  // of the checkpoint that RUN/best names
  double best_loss = 0;              // its held-out loss
  double train_s = 0;                // all steps, without load, evaluation and checkpoints
  double median_step_s = 0;
  int64_t tokens = 0;
  std::array<double, plan::kLaneCount> busy_s = {};
  std::array<double, plan::kLaneCount> stall_s = {};
  exec::IoTotals io;
  // Of the last step, all ranks.
  int64_t step_read_bytes = 0;  // from NVMe
  int64_t step_write_bytes = 0;
  int64_t step_file_bytes = 0;   // frozen weights from the model's own files
  SentBytes step_sent;           // to each other
  int64_t file_bytes = 0;        // of all steps and ranks
  int64_t processes = 1;         // that `memory` counts
  std::string checkpoint;        // the last one
  uint64_t state_hash = 0;       // of that checkpoint
  memory::ProcessMemory memory;  // after the last step, with arenas
  std::string io_backend;
};

// The number of steps of a run: --steps, or as many as use every sample --epochs times. If the last
// step has rows left, it takes samples of the next epoch.
int64_t planned_steps(const config::Options& options, const data::Dataset& data);
// Warns where epochs are given, or none, and one step takes more samples than they have.
void warn_of_long_step(const config::Options& options, const data::Dataset& data);

// How often a run has used the data after so many steps.
double epochs_at(const config::Options& options, const data::Dataset& data, int64_t step);

// Trains to the end or until stopped, and writes a checkpoint at the end. Throws the first failure;
// earlier checkpoints stay whole.
TrainResult train(const TrainJob& job);

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/exec/loss_scale.h"
#include "engine/exec/state_io.h"
#include "engine/plan/plan.h"

namespace strata::exec {

// Settings of one group of parameters, in place of those of all.
struct GivenGroup {
  double lr = 0;
  double weight_decay = 0;
};

// The settings of the update with a step's gradients.
struct StepSettings {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip = 0;            // 0: no clipping
  double gradient_scale = 1;  // by which the gradients are too large
  // By ParameterGroup::given - 1. Null: groups have the settings above. The array must outlive the
  // update, which may be done in the next instance.
  const GivenGroup* groups = nullptr;
};

// The most ops of a lane, and waits of compute, whose times an instance records.
inline constexpr size_t kMostTimes = 1 << 16;

// One measured op.
struct MeasuredTime {
  uint32_t op = 0;
  double begin_s = 0;
  double end_s = 0;
};

// Compute waited for a lane.
struct MeasuredStall {
  plan::Lane lane = plan::Lane::kCompute;
  double begin_s = 0;
  double end_s = 0;
};

// One run of one program: its inputs and results. Owned by the caller, who must neither move nor
// use it from submit() until wait() returns.
struct Instance {
  plan::ProgramName program = plan::ProgramName::kStep;

  // In
  StepSettings settings;
  std::vector<int32_t> tokens;          // [micro_batch][B, T]
  std::vector<int32_t> targets;         // [micro_batch][B, T]; -1: not a target
  int64_t target_count = 1;             // of the whole step, all ranks
  std::vector<int32_t> logit_position;  // [B], only for generate
  std::vector<float> logits;            // [B, V], only for generate; sized by the caller
  // Generate with a cache: how many of the tokens, of where they are and of the positions are
  // there, each array from the start of its part (model::token_bytes).
  int64_t token_count = 0;
  int64_t logit_count = 0;
  StateSource* source = nullptr;  // load
  UpdateHistory history = {};     // load: of the state
  StateSink* sink = nullptr;      // checkpoint
  bool record_times = false;
  // A step whose caller knows the settings only after the last gradient: Decide waits for
  // Executor::decide(). Until then the caller may change `settings` and `discards`.
  bool decides_late = false;
  bool discards = false;  // the step updates nothing, whatever its gradients are

  // Out
  std::vector<double> loss_sums;  // by micro-batch, of this rank, in nats
  double grad_norm = 0;           // before clipping, of all ranks; of the loss without its scale
  bool finite = true;
  double loss_scale = 1;    // that the step used
  bool overflowed = false;  // its gradients are not finite, and the next step has a smaller scale
  double begin_s = 0;
  double end_s = 0;
  std::vector<double> use_s;  // by use of a caller that computes, over all micro-batches
  std::array<double, plan::kLaneCount> busy_s = {};
  std::array<double, plan::kLaneCount> stall_s = {};      // of compute, by the lane it waited for
  std::array<int64_t, plan::kLaneCount> nvme_bytes = {};  // moved by each I/O lane
  std::array<SentBytes, plan::kLaneCount> sent = {};      // by each lane between ranks
  std::vector<std::vector<MeasuredTime>> times;  // by lane, when record_times; see kMostTimes
  std::vector<MeasuredStall> stalls;             // when record_times

  // Used by the executor
  int64_t sequence = 0;                             // how many instances were submitted before
  std::array<int64_t, plan::kLaneCount> base = {};  // ops that each lane published before this
  std::atomic<int> lanes_left = 0;
  std::atomic<bool> may_decide = false;
  std::atomic<bool> over = false;  // set once, after all results
};

// Whether a step ends the run: its loss is not finite, which no scale helps, or its gradients are
// not with any scale. `loss` is that of all ranks.
inline bool is_lost(const Instance& step, double loss) {
  return !std::isfinite(loss) || (!step.finite && !step.overflowed);
}

}  // namespace strata::exec

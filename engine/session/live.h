// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/train/run_plan.h"

namespace strata::session {

// The state of one rank on an executor, whose steps a caller drives one by one.
//
// Threads: one. Failure: Error; after that it can only be destroyed. Plan and frozen source must
// outlive it.
class Live {
 public:
  // `settings`: of every step, but for its learning rate.
  Live(const train::RunPlan& plan, const exec::ExecutorOptions& options,
       const exec::StepSettings& settings);

  // `step`: the last one that the state has seen; `updates`: how many of them changed it.
  void load(exec::StateSource& source, int64_t step, int64_t updates);

  // A step begins; its tokens and targets are [M, B, T], or empty where the caller computes.
  // Throws Error{kConfig} for other sizes, and where nothing is a target.
  void begin(double lr, std::span<const int32_t> tokens, std::span<const int32_t> targets);
  // It is over: Error{kUsage} where passes are left. Throws Error{kNumeric} for a
  // loss or gradient that is not finite.
  const exec::Instance& end();
  // Where the caller computes. Throws Error{kUsage} for a call out of turn, which changes nothing.
  exec::SegmentUse acquire(int segment, exec::Pass pass);
  void release();
  // Throws Error{kUsage} where a step is under way.
  void require_no_step(const char* call) const;

  int64_t step() const { return step_; }
  // Mean losses over all targets.
  double loss() const { return loss_; }  // of the last step
  double evaluate(std::span<const int32_t> tokens, std::span<const int32_t> targets);
  const std::vector<float>& logits(std::span<const int32_t> context);
  // The state, with all steps applied; returns how many updates it has seen.
  int64_t stream(exec::StateSink& sink);

 private:
  void drain();
  void fill(std::span<const int32_t> tokens, std::span<const int32_t> targets,
            exec::Instance& instance) const;

  const train::RunPlan& run_;
  const plan::Plan& plan_;
  const exec::StepSettings settings_;
  std::unique_ptr<exec::Instance> instance_;  // of the step that is under way, or was the last
  exec::Instance generate_;
  const bool external_;
  bool under_way_ = false;
  bool acquired_ = false;
  size_t passes_left_ = 0;  // of the caller, in the step under way
  int64_t step_ = 0;
  double loss_ = 0;
  exec::Executor executor_;  // goes before what its lanes still work on
};

}  // namespace strata::session

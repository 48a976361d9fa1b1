// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/train/run_plan.h"

namespace strata::session {

// The state of one rank on an executor, for a caller that drives steps one by one.
//
// Threads: one. Failure: Error. Wrong arguments and calls out of turn (kConfig, kUsage) change
// nothing; after any other failure, failed() is true and the object can only be destroyed. Plan and
// frozen source must outlive it.
class Live {
 public:
  // `settings` apply to every step, except for the learning rate.
  // With `may_leave_out`, a caller that computes may leave out uses. `group`: the ranks that share
  // the state of such a caller's units; null for one.
  Live(const train::RunPlan& plan, const exec::ExecutorOptions& options,
       const exec::StepSettings& settings, bool may_leave_out = false,
       comm::Group* group = nullptr);

  // Between steps. `step` is the last step that the state includes.
  void load(exec::StateSource& source, int64_t step, const exec::UpdateHistory& history);

  // Begins a step. Tokens and targets are [M, B, T]. Throws Error{kConfig} for other sizes, when no
  // token is a target, and for a learning rate that is negative or not finite.
  void begin(double lr, std::span<const int32_t> tokens, std::span<const int32_t> targets);
  // Ends the step. Throws Error{kUsage} when passes are left, and Error{kNumeric} for a loss or
  // gradient that is not finite; a caller's gradients that are not finite leave the state as it is.
  const exec::Instance& end();

  // For a caller that computes. A call out of turn throws Error{kUsage} and changes nothing. The
  // settings of a step may be given as late as in end(). discard() ends a step, at any time,
  // without an update.
  void begin(std::optional<double> lr = {});
  exec::SegmentUse acquire(int segment, exec::Pass pass, const exec::UseMode& mode = {});
  void copy(void* to, const void* from, int64_t bytes);  // see exec::Executor::copy()
  const std::vector<int>& acquired();                    // segments of the use
  exec::SegmentUse used(int segment);
  void release();
  void end_micro_batch();
  void begin_forward();
  void end_forward();
  const exec::Instance& end(const exec::StepSettings& settings,
                            std::vector<exec::GivenGroup> groups = {});
  void discard();
  // Throws Error{kUsage} when a step has begun and not ended.
  void require_no_step(const char* call) const;

  bool failed() const { return failed_; }
  // The state is lost, because other ranks have stopped.
  void give_up() { failed_ = true; }
  bool is_under_way() const { return under_way_; }  // a step or forward has begun
  int64_t step() const { return step_; }            // steps that were ended, not those discarded
  const exec::StepSettings& settings() const { return settings_; }
  // Between steps.
  int64_t updates() const { return executor_.history().updates + (executor_.pending() ? 1 : 0); }
  const exec::Executor& executor() const { return executor_; }
  const exec::Instance* last() const { return under_way_ ? nullptr : instance_.get(); }
  int64_t left_out() const { return left_out_; }  // uses of the last step
  // By use: from acquire() to release(), or of a device from the weights' arrival to the end of
  // what the stream did; mean over the micro-batches of the last step.
  const std::vector<double>& use_seconds() const { return use_seconds_; }
  // Mean losses over all targets.
  double loss() const { return loss_; }  // of the last step
  double evaluate(std::span<const int32_t> tokens, std::span<const int32_t> targets);
  const std::vector<float>& logits(std::span<const int32_t> context);
  // Applies the update that is still pending. Of several ranks, all call it together.
  void drain();
  // Puts values in the place of a part of a plane, with all updates applied.
  void put(const exec::PlaneValues& values);
  // Writes the state, with all updates applied, to `sink`, and returns its history.
  exec::UpdateHistory stream(exec::StateSink& sink);

 private:
  void run(exec::Instance& instance);
  void agree_on_end();
  void submit(std::unique_ptr<exec::Instance> instance);
  const plan::Program& program() const { return plan_.program(instance_->program); }
  void require_acquired(const char* call) const;
  void require_under_way(plan::ProgramName program, const char* call) const;
  void finish_passes();
  void leave_out_until(int segment, exec::Pass pass);
  void leave_out();
  void fill(std::span<const int32_t> tokens, std::span<const int32_t> targets,
            exec::Instance& instance) const;

  const train::RunPlan& run_;
  const plan::Plan& plan_;
  const exec::StepSettings settings_;
  std::unique_ptr<exec::Instance> instance_;  // of the current or the last step
  exec::Instance generate_;
  const bool external_;
  const bool may_leave_out_;
  comm::Group* const group_;
  bool under_way_ = false;
  bool acquired_ = false;
  bool failed_ = false;
  size_t passes_left_ = 0;  // that the caller must do in the current program
  int micro_batch_ = 0;     // that the caller is in
  int64_t left_out_ = 0;
  std::vector<double> use_seconds_;
  int64_t step_ = 0;
  double loss_ = 0;
  // Of the current step and of the one before, whose update may be under way.
  std::array<std::vector<exec::GivenGroup>, 2> groups_;
  exec::Executor executor_;  // destroyed before the objects that its lanes use
};

}  // namespace strata::session

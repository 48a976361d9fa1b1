// SPDX-License-Identifier: Apache-2.0
#include "engine/train/rank_trainer.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/model_source.h"
#include "engine/train/resume_check.h"

namespace strata::train {
namespace {

data::BatchOptions batch_options(const config::Options& options) {
  return {.rows = options.micro_batch,
          .accumulate = options.accumulate,
          .replicas = options.batch_ranks(),
          .shuffle = options.shuffle,
          .seed = static_cast<uint64_t>(options.seed)};
}

ScheduleOptions schedule_options(const config::Options& options, int64_t steps) {
  const auto kind = options.schedule == config::Schedule::kConstant ? ScheduleKind::kConstant
                    : options.schedule == config::Schedule::kLinear ? ScheduleKind::kLinear
                                                                    : ScheduleKind::kCosine;
  return {.kind = kind,
          .peak = options.peak_lr(),
          .steps = steps,
          .warmup_steps = options.warmup_steps,
          .warmup_ratio = options.warmup_ratio,
          .min_ratio = options.min_lr_ratio};
}

// The bytes of frozen weights that a step reads from the model's own files.
int64_t file_bytes_of(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::Op& op : plan.program(plan::ProgramName::kStep).ops) {
    if (op.kind == plan::OpKind::kConvert) bytes += op.bytes;
  }
  return bytes;
}

}  // namespace

RankTrainer::RankTrainer(const TrainJob& job, int rank, const RankGroups& groups)
    : job_(job),
      options_(*job.options),
      plan_(plan_of(*job.plan, rank)),
      spec_(job.plan->spec_of(rank)),
      rank_(rank),
      groups_(groups),
      checkpoints_(*job.plan->spec, spec_, plan_, groups.trainer,
                   {.directory = job.out + "/checkpoints",
                    .keep = job.options->keep_checkpoints,
                    .also = best_link(job.out),
                    .nonce = job.run,
                    .trainer = rank == 0 ? about_run(*job.options, *job.data, job.frozen,
                                                     plan_.mesh, plan_.shape, job.arithmetic)
                                         : config::Json::object()}),
      best_(job.out, {.keeps = job.options->keep_best, .patience = job.options->patience}),
      file_bytes_(file_bytes_of(plan_)),
      batches_(job.data->train(), batch_options(*job.options)),
      steps_(planned_steps(*job.options, *job.data)),
      schedule_(schedule_options(*job.options, steps_)),
      from_model_(*job.model, spec_, job.options->ranks == 1),
      frozen_(from_model_, spec_, job.model->path()) {}

void RankTrainer::run(TrainResult& result) {
  compare_plans(plan_, groups_.trainer);
  exec::ExecutorOptions executor = executor_options(options_, *job_.plan, rank_, groups_);
  executor.frozen = &frozen_;
  executor_ = std::make_unique<exec::Executor>(plan_, spec_, executor);
  load();
  result.first_step = done_step_ + 1;
  result.planned_steps = steps_;
  start(result.first_step);
  prepare_trace();
  train_steps(result);
  result.memory = memory::read_process_memory();
  result.held_out = best_.losses();
  result.best_step = best_.kept_step();
  result.best_loss = best_.kept_loss();
  result.io = executor_->io_totals();
  result.io_backend = executor_->io_backend();
  if (const auto scale = executor_->history().loss_scale) result.loss_scale = scale->factor;
  result.state_hash = checkpoints_.state_hash();
  executor_.reset();
  sum_up(result);
}

// No rank changes anything before all have loaded the state.
void RankTrainer::start(int64_t first_step) {
  if (groups_.trainer) groups_.trainer->barrier();
  const bool is_told = leads() || job_.groups.trainer != nullptr;
  if (is_told && job_.events.started) job_.events.started(first_step);
  if (leads()) best_.begin(done_step_);
  if (groups_.trainer) groups_.trainer->barrier();
}

// Right after a barrier, so that the times of all ranks have one origin.
void RankTrainer::prepare_trace() {
  if (options_.trace_steps == 0) return;
  const Trace::Steps steps =
      traced_steps(options_.trace_steps, options_.trace_from, done_step_ + 1, steps_);
  trace_.emplace(job_.out, plan_, spec_, groups_.trainer, steps);
}

// What processes use adds up; ranks that are threads have read the memory of all. A byte count
// below 2^53 is exact as a double.
void RankTrainer::sum_up(TrainResult& result) const {
  std::vector<int64_t*> counts = {&result.file_bytes, &result.io.bytes_read,
                                  &result.io.bytes_verified, &result.io.bytes_written};
  if (job_.plan->processes) {
    memory::ProcessMemory& memory = result.memory;
    result.processes = options_.ranks;
    counts.insert(counts.end(), {&memory.resident_bytes, &memory.resident_peak_bytes,
                                 &memory.file_bytes, &memory.heap_bytes, &memory.stack_bytes});
  }
  int64_t by_uring = result.io_backend == "io_uring" ? 1 : 0;
  int64_t by_threads = result.io_backend == "threads" ? 1 : 0;
  counts.insert(counts.end(), {&by_uring, &by_threads});
  std::vector<double> sums;
  for (const int64_t* count : counts) sums.push_back(static_cast<double>(*count));
  if (groups_.trainer) groups_.trainer->all_reduce_sum(sums.data(), std::ssize(sums));
  for (size_t i = 0; i < counts.size(); ++i) *counts[i] = static_cast<int64_t>(sums[i]);
  // A stage may have nothing on drives.
  if (by_threads > 0) result.io_backend = "threads";
  if (by_uring > 0) result.io_backend = "io_uring";
}

void RankTrainer::enter(RunPhase phase) const {
  if (leads() && job_.phase != nullptr) job_.phase->store(phase);
}

void RankTrainer::load() {
  enter(RunPhase::kLoad);
  exec::Instance instance;
  instance.program = plan::ProgramName::kLoad;
  instance.source = &from_model_;
  std::unique_ptr<checkpoint::CheckpointReader> from;
  if (!job_.resume_from.empty()) {
    from = checkpoints_.open(job_.resume_from, from_model_);
    instance.source = from.get();
    done_step_ = from->manifest().step;
    instance.history = from->manifest().history(batches_.updates_in(done_step_));
  }
  ReportedSource source(*instance.source, plan_, leads() ? job_.events.work : nullptr);
  instance.source = &source;
  executor_->run(instance);
}

bool RankTrainer::is_evaluated(int64_t step) const {
  return options_.eval_every > 0 && (step % options_.eval_every == 0 || step == steps_);
}

// A stop or a crash may have come between a checkpoint of this run and its evaluation, which is
// made up for. Returns whether --patience ends the run where it is.
bool RankTrainer::catch_up(TrainResult& result) {
  if (done_step_ == 0 || done_step_ > steps_) return false;
  const auto folder = std::filesystem::path(job_.resume_from).parent_path();
  std::error_code unequal;
  const bool lacks = leads() && is_evaluated(done_step_) && best_.losses().last_step < done_step_ &&
                     std::filesystem::equivalent(folder, job_.out + "/checkpoints", unequal);
  lacks_evaluation_ = any_rank(lacks);
  if (lacks_evaluation_) {
    lacks_evaluation_ = !evaluate(done_step_, result);
    if (!lacks_evaluation_) judge(done_step_, true, result);
  } else if (done_step_ < steps_) {
    result.stopped_early = any_rank(leads() && best_.out_of_patience());
  }
  return result.stopped_early;
}

// A checkpoint is written before an evaluation, because a user who stops the run may not wait for
// both. A new run makes a step before it stops, so that there is a checkpoint.
void RankTrainer::train_steps(TrainResult& result) {
  bool stopping = catch_up(result) || (done_step_ > 0 && must_stop());
  last_end_s_ = last_checkpoint_s_ = now_s();
  int64_t step = done_step_;
  while (step < steps_ && !stopping) {
    enter(RunPhase::kStep);
    submit(++step);
    if (flying_.size() > 1) finish(result);
    stopping = must_stop();
    const bool is_end = step == steps_ || stopping;
    const bool saves = is_end || is_overdue() ||
                       (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0);
    const bool evaluates = !stopping && is_evaluated(step);
    if (!saves && !evaluates) continue;
    settle(result);
    if (saves) checkpoint(step, result);
    bool saved = saves;
    if (evaluates && evaluate(step, result)) saved = judge(step, saved, result);
    stopping = stopping || result.stopped_early || must_stop();
    if (stopping && !saved) checkpoint(step, result);
    last_end_s_ = now_s();
  }
  if (trace_) trace_->finish();
  if (unrecorded_) std::rethrow_exception(unrecorded_);
  result.stopped = stopping && (step < steps_ || lacks_evaluation_) && !result.stopped_early;
  result.last_step = step;
  if (!step_times_.empty()) {
    std::vector<double> sorted = step_times_;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(sorted.size() / 2),
                     sorted.end());
    result.median_step_s = sorted[sorted.size() / 2];
  }
}

double RankTrainer::sum_over_ranks(double value) const {
  if (groups_.trainer) groups_.trainer->all_reduce_sum(&value, 1);
  return value;
}

bool RankTrainer::any_rank(bool asks) const {
  return sum_over_ranks(asks ? 1.0 : 0.0) > 0;
}

bool RankTrainer::must_stop() const {
  return any_rank(unrecorded_ || (job_.stop != nullptr && job_.stop->load()));
}

// All ranks save at the same step, by rank 0's clock.
bool RankTrainer::is_overdue() const {
  if (job_.checkpoint_every_s <= 0) return false;
  return any_rank(leads() && now_s() - last_checkpoint_s_ >= job_.checkpoint_every_s);
}

// Computes the mean loss over the held-out tokens, each sample once. False, and nothing is
// reported, when there are none or the run is asked to stop.
bool RankTrainer::evaluate(int64_t step, TrainResult& result) {
  if (job_.data->held_out().sample_count() == 0) return false;
  enter(RunPhase::kEvaluation);
  data::BatchOptions options = batch_options(options_);
  options.shuffle = false;
  options.repeat = false;
  const data::Batches batches(job_.data->held_out(), options);
  double sum = 0;
  int64_t count = 0;
  for (int64_t batch = 0; batch < batches.steps_per_epoch(); ++batch) {
    if (must_stop()) return false;
    exec::Instance instance;
    instance.program = plan::ProgramName::kEval;
    fill_instance(batches, plan_, batch, instance);
    count += batches.target_count(batch);
    executor_->run(instance);
    if (counts_losses()) {
      for (double part : instance.loss_sums) sum += part;
    }
    if (leads() && job_.events.work)
      job_.events.work("evaluating", batch + 1, batches.steps_per_epoch());
  }
  const double loss = sum_over_ranks(sum) / static_cast<double>(std::max<int64_t>(1, count));
  const auto samples = sample();
  if (!samples) return false;
  result.held_out_loss = loss;
  if (leads() && job_.events.evaluated) {
    record([&] { job_.events.evaluated(step, loss, *samples); });
  }
  return true;
}

// Keeps the state if its held-out loss is the least, and ends the run when that was too long ago.
// The older best checkpoint stays until the new one has its name. Returns whether the step has a
// checkpoint.
bool RankTrainer::judge(int64_t step, bool saved, TrainResult& result) {
  const bool is_best = any_rank(leads() && best_.add(step, *result.held_out_loss));
  if (is_best && !saved) checkpoint(step, result);
  if (is_best && leads()) {
    best_.keep(step);
    checkpoints_.rotate();
  }
  result.stopped_early = step < steps_ && any_rank(leads() && best_.out_of_patience());
  return saved || is_best;
}

void RankTrainer::checkpoint(int64_t step, TrainResult& result) {
  enter(RunPhase::kCheckpoint);
  exec::Instance instance;
  instance.program = plan::ProgramName::kCheckpoint;
  checkpoints_.save(step, [&](exec::StateSink& sink) {
    ReportedSink reported(sink, plan_, leads() ? job_.events.work : nullptr);
    instance.sink = &reported;
    executor_->run(instance);
    return executor_->history();
  });
  last_checkpoint_s_ = now_s();
  result.checkpoint = checkpoints_.last_path();
  if (leads() && job_.events.checkpointed) job_.events.checkpointed(step, result.checkpoint);
}

}  // namespace strata::train

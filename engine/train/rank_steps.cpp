// SPDX-License-Identifier: Apache-2.0
// The steps of a rank: how they are submitted, and what is taken from them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/train/rank_trainer.h"

namespace strata::train {

using plan::Lane;

// A step without a target token has no gradient, but would still decay moments and weights. So it
// is not run.
void RankTrainer::submit(int64_t step) {
  if (batches_.target_count(step - 1) == 0) {
    flying_.push_back({step, nullptr});
    return;
  }
  auto instance = std::make_unique<exec::Instance>();
  instance->settings = {.lr = schedule_.lr(step),
                        .beta1 = options_.betas.first,
                        .beta2 = options_.betas.second,
                        .eps = options_.eps,
                        .weight_decay = options_.weight_decay,
                        .clip = options_.clip};
  fill_instance(batches_, plan_, step - 1, *instance);
  instance->record_times = trace_ && trace_->traces(step);
  executor_->submit(*instance);
  flying_.push_back({step, std::move(instance)});
}

// Waits for the oldest step in flight and takes its loss and metrics.
void RankTrainer::finish(TrainResult& result) {
  if (flying_.front().instance) executor_->wait(*flying_.front().instance);
  const Flight flight = std::move(flying_.front());
  flying_.pop_front();
  const int64_t step = done_step_ = flight.step;
  if (!flight.instance) return skip(step, result);
  const exec::Instance* instance = flight.instance.get();
  const double early_s = add_early_update(*flight.instance);
  // Of all ranks: losses, and bytes that drives and ranks have moved.
  std::array<double, 6> sums = {
      0, static_cast<double>(nvme_bytes_read(*instance)),
      static_cast<double>(instance->nvme_bytes[static_cast<size_t>(Lane::kWrite)]),
      static_cast<double>(file_bytes_)};
  for (const SentBytes& sent : instance->sent) {
    sums[4] += static_cast<double>(sent.within);
    sums[5] += static_cast<double>(sent.between);
  }
  if (counts_losses()) {
    for (double part : instance->loss_sums) sums[0] += part;
  }
  if (groups_.trainer) groups_.trainer->all_reduce_sum(sums.data(), std::ssize(sums));
  const double loss = sums[0] / static_cast<double>(instance->target_count);
  const double begin_s = std::max(last_end_s_, instance->begin_s);
  const double step_s = instance->end_s - begin_s + early_s;
  last_end_s_ = instance->end_s;
  if (instance->record_times) trace_->add(step, *instance, begin_s);
  if (is_lost(*instance, loss)) {
    const bool is_narrow = scales_loss(options_.recipe);
    throw Error(
        ErrorCode::kNumeric,
        fmt::format(
            "step {}: loss {} and gradient norm {}: not finite{} ({}lower --lr, set --clip, "
            "or look at the data)",
            step, loss, instance->grad_norm,
            plan_.update().waits ? ", and the update was not applied" : "",
            is_narrow ? "use --recipe bf16, whose numbers may be larger, " : ""));
  }
  if (instance->overflowed) {
    ++result.overflowed_steps;
  } else {
    if (result.tokens == 0) result.first_loss = loss;
    result.last_loss = loss;
    result.tokens += instance->target_count;
  }
  result.train_s += step_s;
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    result.busy_s[lane] += instance->busy_s[lane];
    result.stall_s[lane] += instance->stall_s[lane];
  }
  step_times_.push_back(step_s);
  result.step_read_bytes = static_cast<int64_t>(sums[1]);
  result.step_write_bytes = static_cast<int64_t>(sums[2]);
  result.step_file_bytes = static_cast<int64_t>(sums[3]);
  result.step_sent = {static_cast<int64_t>(sums[4]), static_cast<int64_t>(sums[5])};
  result.file_bytes += file_bytes_;
  if (!leads() || !job_.events.step) return;
  StepMetrics metrics = metrics_of(flight, loss, step_s);
  metrics.nvme_read_bytes = result.step_read_bytes;
  metrics.nvme_write_bytes = result.step_write_bytes;
  metrics.file_read_bytes = result.step_file_bytes;
  metrics.sent = result.step_sent;
  record([&] { job_.events.step(metrics); });
}

// A record that cannot be written ends the run, after its checkpoint.
void RankTrainer::record(const std::function<void()>& write) {
  if (unrecorded_) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) throw;
    unrecorded_ = std::current_exception();
  }
}

void RankTrainer::skip(int64_t step, TrainResult& result) {
  if (leads() && result.skipped_steps == 0) {
    log(LogLevel::kWarning,
        fmt::format("step {}: no token is a target, so the step updates nothing; later steps "
                    "like it are not reported (shorten prompts, or raise --sequence-length)",
                    step));
  }
  ++result.skipped_steps;
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = NAN;
  metrics.skip = Skip::kNoTarget;
  metrics.lr = schedule_.lr(step);
  metrics.epoch = epochs_at(options_, *job_.data, step);
  metrics.time_s = unix_time_s();
  if (leads() && job_.events.step) record([&] { job_.events.step(metrics); });
}

// Ends all steps, and the update that the last one left for the next. That counts as part of the
// next one, as it would without the pause.
void RankTrainer::settle(TrainResult& result) {
  while (!flying_.empty()) finish(result);
  if (!executor_->pending()) return;
  early_update_ = std::make_unique<exec::Instance>();
  early_update_->program = plan::ProgramName::kDrain;
  executor_->run(*early_update_);
}

// Adds what was done of the step before it began, and returns the seconds of that.
double RankTrainer::add_early_update(exec::Instance& step) {
  const std::unique_ptr<exec::Instance> update = std::move(early_update_);
  if (!update) return 0;
  for (size_t lane = 0; lane < plan::kLaneCount; ++lane) {
    step.busy_s[lane] += update->busy_s[lane];
    step.stall_s[lane] += update->stall_s[lane];
    step.nvme_bytes[lane] += update->nvme_bytes[lane];
    step.sent[lane] += update->sent[lane];
  }
  return update->end_s - update->begin_s;
}

int64_t RankTrainer::nvme_bytes_read(const exec::Instance& instance) const {
  return instance.nvme_bytes[static_cast<size_t>(Lane::kReadWeights)] +
         instance.nvme_bytes[static_cast<size_t>(Lane::kReadState)] - file_bytes_;
}

StepMetrics RankTrainer::metrics_of(const Flight& flight, double loss, double step_s) const {
  const exec::Instance& instance = *flight.instance;
  StepMetrics metrics;
  metrics.step = flight.step;
  metrics.loss = loss;
  if (instance.overflowed) metrics.skip = Skip::kOverflow;
  metrics.grad_norm = instance.grad_norm;
  if (scales_loss(options_.recipe)) metrics.loss_scale = instance.loss_scale;
  metrics.lr = instance.settings.lr;
  metrics.tokens = instance.target_count;
  metrics.positions = options_.step_samples() * options_.sequence_length;
  metrics.step_s = step_s;
  metrics.mfu = job_.plan->mfu(step_s);
  metrics.epoch = epochs_at(options_, *job_.data, flight.step);
  metrics.time_s = unix_time_s();
  constexpr std::pair<Lane, const char*> kCauses[] = {{Lane::kReadWeights, "read_weights"},
                                                      {Lane::kReadState, "read_state"},
                                                      {Lane::kWrite, "write"},
                                                      {Lane::kOptimizer, "optimizer"},
                                                      {Lane::kUpload, "upload"},
                                                      {Lane::kDownload, "download"},
                                                      {Lane::kComm, "comm"},
                                                      {Lane::kUpdate, "update"}};
  for (const auto& [lane, name] : kCauses) {
    metrics.stall_s.emplace_back(name, instance.stall_s[static_cast<size_t>(lane)]);
    if (lane != Lane::kComm) continue;
    for (const Lane inner : {Lane::kCommInner, Lane::kCommStage}) {
      metrics.stall_s.back().second += instance.stall_s[static_cast<size_t>(inner)];
    }
  }
  return metrics;
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#include "engine/session/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/gather_each.h"
#include "engine/train/inference.h"

namespace strata::session {
namespace {

constexpr size_t kCompute = static_cast<size_t>(plan::Lane::kCompute);

double sum_of(const std::vector<double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

uint64_t hash_of(const exec::StepSettings& settings, const std::vector<exec::GivenGroup>& groups) {
  const auto& [lr, beta1, beta2, eps, weight_decay, clip, scale, given] = settings;  // all fields
  std::vector<double> values = {lr, clip, weight_decay, scale};
  for (const exec::GivenGroup& group : groups) {
    values.insert(values.end(), {group.lr, group.weight_decay});
  }
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return std::hash<std::string_view>()({bytes, values.size() * sizeof(double)});
}

void check_lr(double lr) {
  if (std::isfinite(lr) && lr >= 0) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("step: lr: {}: is not a learning rate (give 0 or more)", lr));
}

}  // namespace

Live::Live(const train::RunPlan& plan, const exec::ExecutorOptions& options,
           const exec::StepSettings& settings, bool may_leave_out, comm::Group* group)
    : run_(plan),
      plan_(plan.ranks.front()),
      settings_(settings),
      external_(options.external),
      may_leave_out_(may_leave_out),
      group_(group),
      executor_(plan_, *plan.spec, options) {}

void Live::load(exec::StateSource& source, int64_t step, const exec::UpdateHistory& history) {
  drain();
  exec::Instance instance;
  instance.program = plan::ProgramName::kLoad;
  instance.source = &source;
  instance.history = history;
  run(instance);
  instance_.reset();
  use_seconds_.clear();
  step_ = step;
}

void Live::fill(std::span<const int32_t> tokens, std::span<const int32_t> targets,
                exec::Instance& instance) const {
  if (plan_.shape.documents) {
    throw Error(ErrorCode::kConfig,
                "batch: --samples packed is for runs over data (leave it out, and give each record "
                "a row)");
  }
  const int64_t wanted = plan_.shape.tokens() * plan_.micro_batches;
  const int64_t given = std::ssize(tokens);
  if (given != wanted || std::ssize(targets) != wanted) {
    throw Error(ErrorCode::kConfig,
                fmt::format("batch: {} tokens and {} targets: the plan has {} of each (give {} "
                            "micro-batches of {} samples of {} tokens)",
                            given, targets.size(), wanted, plan_.micro_batches, plan_.shape.rows,
                            plan_.shape.length));
  }
  const int64_t vocabulary = run_.spec->architecture.vocabulary;
  const auto is_id = [&](int32_t id) { return id >= 0 && id < vocabulary; };
  const auto is_target = [&](int32_t id) { return id == -1 || is_id(id); };
  if (!std::ranges::all_of(tokens, is_id) || !std::ranges::all_of(targets, is_target)) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("batch: a token or target is not an id of the model (give ids below {}; a "
                    "target of -1 does not count)",
                    vocabulary));
  }
  instance.tokens.assign(tokens.begin(), tokens.end());
  instance.targets.assign(targets.begin(), targets.end());
  instance.target_count = std::ranges::count_if(targets, [](int32_t id) { return id >= 0; });
  if (instance.target_count == 0) {
    throw Error(ErrorCode::kConfig, "batch: no token is a target (leave out this step)");
  }
}

void Live::begin(double lr, std::span<const int32_t> tokens, std::span<const int32_t> targets) {
  require_no_step("step");
  check_lr(lr);
  auto instance = std::make_unique<exec::Instance>();
  fill(tokens, targets, *instance);
  instance->settings = settings_;
  instance->settings.lr = lr;
  submit(std::move(instance));
}

void Live::begin(std::optional<double> lr) {
  require_no_step("begin");
  if (lr) check_lr(*lr);
  auto instance = std::make_unique<exec::Instance>();
  instance->settings = settings_;
  instance->settings.lr = lr.value_or(NAN);
  instance->decides_late = true;
  submit(std::move(instance));
}

void Live::submit(std::unique_ptr<exec::Instance> instance) {
  instance_ = std::move(instance);
  failed_ = true;
  executor_.submit(*instance_);
  failed_ = false;
  under_way_ = true;
  acquired_ = false;
  left_out_ = 0;
  micro_batch_ = 0;
  passes_left_ = external_ ? program().lanes[kCompute].size() : 0;
}

void Live::begin_forward() {
  require_no_step("begin_forward");
  drain();
  auto instance = std::make_unique<exec::Instance>();
  instance->program = plan::ProgramName::kEval;
  submit(std::move(instance));
}

void Live::end_forward() {
  require_under_way(plan::ProgramName::kEval, "end_forward");
  finish_passes();
  failed_ = true;
  executor_.wait(*instance_);
  under_way_ = false;
  failed_ = false;
}

void Live::require_no_step(const char* call) const {
  if (!under_way_) return;
  throw Error(ErrorCode::kUsage, std::string(call) + ": a step has begun (end it first)");
}

exec::SegmentUse Live::acquire(int segment, exec::Pass pass, const exec::UseMode& mode) {
  if (passes_left_ == 0) {
    throw Error(ErrorCode::kUsage, "acquire: no pass of a step is left (begin a step first)");
  }
  if (acquired_) {
    throw Error(ErrorCode::kUsage, "acquire: a unit is acquired already (release it first)");
  }
  try {
    if (may_leave_out_) leave_out_until(segment, pass);
    const exec::SegmentUse use = executor_.ready(segment, pass, mode);
    acquired_ = true;
    micro_batch_ = executor_.next_use().micro_batch;
    return use;
  } catch (const Error& error) {
    failed_ = error.code() != ErrorCode::kConfig;  // that is a pass out of turn
    throw;
  }
}

const std::vector<int>& Live::acquired() {
  require_acquired("used");
  return run_.spec->uses[executor_.next_use().use].segments;
}

void Live::copy(void* to, const void* from, int64_t bytes) {
  require_acquired("copy");
  try {
    executor_.copy(to, from, bytes);
  } catch (const Error& error) {
    failed_ = error.code() != ErrorCode::kUsage;  // that is a range beyond the use
    throw;
  }
}

exec::SegmentUse Live::used(int segment) {
  if (std::ranges::count(acquired(), segment) > 0) return executor_.used(segment);
  throw Error(
      ErrorCode::kUsage,
      fmt::format("used: {}: is not a unit of this use (declare it in the order)", segment));
}

void Live::leave_out() {
  failed_ = true;
  executor_.skip();
  failed_ = false;
  --passes_left_;
  ++left_out_;
}

// Uses of this micro-batch before the next one that is asked for.
void Live::leave_out_until(int segment, exec::Pass pass) {
  const std::vector<model::ExternalUse>& uses = run_.spec->uses;
  const bool backward = pass == exec::Pass::kBackward;
  if (backward && instance_->program == plan::ProgramName::kEval) return;  // and so ready() says
  const auto is_wanted = [&](const model::ExternalUse& use) {
    return use.segments.front() == segment && use.backward == backward;
  };
  const auto wanted = std::find_if(uses.begin() + executor_.next_use().use, uses.end(), is_wanted);
  if (wanted == uses.end()) return;  // ready() says which use is next
  while (executor_.next_use().use < wanted - uses.begin()) leave_out();
}

void Live::end_micro_batch() {
  if (!under_way_ || acquired_) {
    throw Error(
        ErrorCode::kUsage,
        "end_micro_batch: no micro-batch is open, or a unit is acquired (release it first)");
  }
  const auto is_open = [&] {
    return passes_left_ > 0 && executor_.next_use().micro_batch <= micro_batch_;
  };
  if (!may_leave_out_ && is_open()) {
    throw Error(ErrorCode::kUsage,
                "end_micro_batch: uses of it are left (do them, or declare that they may be left "
                "out)");
  }
  while (is_open()) leave_out();
  ++micro_batch_;
}

void Live::release() {
  require_acquired("release");
  failed_ = true;  // unless it returns
  executor_.done();
  failed_ = false;
  acquired_ = false;
  --passes_left_;
}

void Live::require_acquired(const char* call) const {
  if (acquired_) return;
  throw Error(ErrorCode::kUsage, std::string(call) + ": no unit is acquired (acquire it first)");
}

void Live::require_under_way(plan::ProgramName program, const char* call) const {
  if (under_way_ && instance_->program == program) return;
  const bool step = program == plan::ProgramName::kStep;
  throw Error(ErrorCode::kUsage, fmt::format("{}: no {} has begun (begin one first)", call,
                                             step ? "step" : "forward"));
}

// Of the uses that are left.
void Live::finish_passes() {
  while (may_leave_out_ && !acquired_ && passes_left_ > 0) leave_out();
  if (passes_left_ == 0) return;
  throw Error(ErrorCode::kUsage, fmt::format("step: {} of its passes are left (acquire and release "
                                             "every unit of each micro-batch, or discard the step)",
                                             passes_left_));
}

const exec::Instance& Live::end(const exec::StepSettings& settings,
                                std::vector<exec::GivenGroup> groups) {
  require_under_way(plan::ProgramName::kStep, "step");
  check_lr(settings.lr);
  finish_passes();
  std::swap(groups_[0], groups_[1]);
  groups_[0] = std::move(groups);
  instance_->settings = settings;
  instance_->settings.groups = groups_[0].empty() ? nullptr : groups_[0].data();
  return end();
}

const exec::Instance& Live::end() {
  require_under_way(plan::ProgramName::kStep, "step");
  check_lr(instance_->settings.lr);
  finish_passes();
  failed_ = true;
  agree_on_end();
  if (instance_->decides_late) executor_.decide(*instance_);
  executor_.wait(*instance_);
  under_way_ = false;
  failed_ = false;
  use_seconds_ = instance_->use_s;
  for (double& seconds : use_seconds_) seconds /= plan_.micro_batches;
  if (instance_->discards) return *instance_;  // another rank did
  ++step_;
  loss_ = sum_of(instance_->loss_sums) / static_cast<double>(instance_->target_count);
  if (!external_ && is_lost(*instance_, loss_)) {
    failed_ = true;
    throw Error(ErrorCode::kNumeric,
                fmt::format("step {}: loss {} and gradient norm {}: not finite (lower the learning "
                            "rate, clip gradients, or look at the data)",
                            step_, loss_, instance_->grad_norm));
  }
  return *instance_;
}

// The passes that are left move weights that nobody uses.
void Live::discard() {
  if (!under_way_) throw Error(ErrorCode::kUsage, "discard: no step has begun (begin one first)");
  failed_ = true;
  if (acquired_) release();
  for (; passes_left_ > 0; --passes_left_) executor_.skip();
  instance_->discards = true;
  agree_on_end();
  if (instance_->decides_late) executor_.decide(*instance_);
  executor_.wait(*instance_);
  under_way_ = false;
  failed_ = false;
}

void Live::run(exec::Instance& instance) {
  failed_ = true;
  executor_.run(instance);
  failed_ = false;
}

// All ranks update with one and the same settings, or not at all.
void Live::agree_on_end() {
  if (group_ == nullptr || instance_->program != plan::ProgramName::kStep) return;
  struct Ending {
    int64_t discards;
    uint64_t settings;
  };
  const Ending own = {instance_->discards ? 1 : 0, hash_of(instance_->settings, groups_[0])};
  const std::vector<Ending> all = comm::gather_each(*group_, own);
  if (std::ranges::any_of(all, [](const Ending& ending) { return ending.discards != 0; })) {
    instance_->discards = true;
    return;
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].settings == all.front().settings) continue;
    const std::string text = fmt::format(
        "step: rank {} ends it with other settings than rank 0 (give all ranks the "
        "same learning rates, clipping and weight decay)",
        rank);
    group_->abort(text);  // one that has not heard of it yet gets this reason
    throw Error(ErrorCode::kPeer, text);
  }
}

void Live::drain() {
  if (!executor_.pending()) return;
  exec::Instance instance;
  instance.program = plan::ProgramName::kDrain;
  run(instance);
}

double Live::evaluate(std::span<const int32_t> tokens, std::span<const int32_t> targets) {
  exec::Instance instance;
  instance.program = plan::ProgramName::kEval;
  fill(tokens, targets, instance);
  drain();
  run(instance);
  return sum_of(instance.loss_sums) / static_cast<double>(instance.target_count);
}

const std::vector<float>& Live::logits(std::span<const int32_t> context) {
  const int64_t vocabulary = run_.spec->architecture.vocabulary;
  const auto is_id = [&](int32_t id) { return id >= 0 && id < vocabulary; };
  if (context.empty()) {
    throw Error(ErrorCode::kConfig, "context: it has no tokens (give one or more)");
  }
  if (const auto other = std::ranges::find_if_not(context, is_id); other != context.end()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("context: {} is not an id of the model (give ids from 0 to {})", *other,
                            vocabulary - 1));
  }
  train::fill_context(plan_, context, vocabulary, generate_);
  drain();
  run(generate_);
  return generate_.logits;
}

void Live::put(const exec::PlaneValues& values) {
  drain();
  failed_ = true;
  executor_.put(values);
  failed_ = false;
}

exec::UpdateHistory Live::stream(exec::StateSink& sink) {
  drain();
  exec::Instance instance;
  instance.program = plan::ProgramName::kCheckpoint;
  instance.sink = &sink;
  run(instance);
  return executor_.history();
}

}  // namespace strata::session

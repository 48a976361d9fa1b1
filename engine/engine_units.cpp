// SPDX-License-Identifier: Apache-2.0
// Sessions of units that a caller declares and computes by itself.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/model/external.h"
#include "engine/session/unit_options.h"

namespace strata {
namespace {

void check(const UnitOptions& units) {
  constexpr int kMicroBatchesMost = 1 << 20;
  constexpr int kThreadsMost = 4096;
  const auto require = [](bool is_right, const char* name, auto value, const char* range) {
    if (is_right) return;
    throw Error(ErrorCode::kConfig,
                fmt::format("units: {}: {}: out of range (give {})", name, value, range));
  };
  const auto is_beta = [](double value) { return value >= 0 && value < 1; };
  const auto is_factor = [](double value) { return value >= 0 && std::isfinite(value); };
  require(units.memory_bytes >= 0, "memory_bytes", units.memory_bytes, "0 or more");
  require(units.micro_batches >= 1 && units.micro_batches <= kMicroBatchesMost, "micro_batches",
          units.micro_batches, "1 to 1048576");
  require(units.threads >= 1 && units.threads <= kThreadsMost, "threads", units.threads,
          "1 to 4096");
  require(is_beta(units.beta1), "beta1", units.beta1, "0 or more, below 1");
  require(is_beta(units.beta2), "beta2", units.beta2, "0 or more, below 1");
  require(is_factor(units.eps) && units.eps > 0, "eps", units.eps, "a number above 0");
  require(is_factor(units.weight_decay), "weight_decay", units.weight_decay, "0 or more");
  require(is_factor(units.clip), "clip", units.clip, "0 or more");
}

config::Options options_of(const UnitOptions& units) {
  check(units);
  config::Options options;
  options.host_memory = units.memory_bytes;
  options.nvme = units.nvme;
  options.recipe = units.bf16 ? Recipe::kBf16 : Recipe::kFp32;
  options.accumulate = units.micro_batches;
  options.threads = units.threads;
  options.betas = {units.beta1, units.beta2};
  options.eps = units.eps;
  options.weight_decay = units.weight_decay;
  options.clip = units.clip;
  return options;
}

model::ModelSpec spec_of(const std::vector<Unit>& units, const config::Options& options) {
  std::vector<model::ExternalSegment> segments;
  for (const Unit& unit : units) {
    model::ExternalSegment& segment = segments.emplace_back();
    segment.name = unit.name;
    segment.frozen = unit.frozen;
    for (const Unit::Tensor& tensor : unit.tensors) {
      segment.parameters.push_back({tensor.name, tensor.shape, tensor.frozen, tensor.group});
    }
  }
  model::ModelSpec spec = model::external_spec(segments);
  train::apply_groups(spec, options);
  return spec;
}

// Settings for each group of tensors that the caller gave a number.
std::vector<exec::GivenGroup> given_groups(const model::ModelSpec& spec,
                                           const UpdateSettings& settings) {
  int count = 0;
  for (const model::ParameterGroup& group : spec.groups) count = std::max(count, group.given);
  if (!settings.groups.empty() && std::ssize(settings.groups) != count) {
    throw Error(ErrorCode::kConfig,
                fmt::format("step: settings of {} groups: the tensors have {} groups (give as "
                            "many, or none)",
                            settings.groups.size(), count));
  }
  std::vector<exec::GivenGroup> groups;
  for (const GroupSettings& group : settings.groups) {
    for (const double value : {group.lr, group.weight_decay}) {
      if (std::isfinite(value) && value >= 0) continue;
      throw Error(
          ErrorCode::kConfig,
          fmt::format("step: group {}: lr {} and weight_decay {}: out of range (give finite "
                      "numbers from 0)",
                      groups.size() + 1, group.lr, group.weight_decay));
    }
    groups.push_back({group.lr, group.weight_decay});
  }
  return groups;
}

// The update's coefficient, an f32, is far from its limits.
void check_scale(double scale) {
  constexpr double kMost = 1e30;
  if (scale >= 1 / kMost && scale <= kMost) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("step: gradient_scale {}: out of range (give a number from 1e-30 to 1e30; "
                  "1 where gradients are not scaled)",
                  scale));
}

UnitUse use_of(const exec::SegmentUse& use) {
  return {use.weights, use.gradient, use.gradient_first};
}

}  // namespace

std::unique_ptr<Session::Impl> Session::Impl::of_units(const std::vector<Unit>& units,
                                                       config::Options options, Sinks sinks) {
  if (options.is_given("io-deadline")) {
    sinks.hang_after_s = static_cast<double>(options.io_deadline);
  }
  model::ModelSpec spec = spec_of(units, options);
  auto impl = std::make_unique<Impl>(SessionKind::kUnits, std::move(options), std::move(sinks), "");
  impl->spec_ = std::move(spec);
  return impl;
}

Session Session::declare(const std::vector<Unit>& units, const UnitOptions& options, Sinks sinks) {
  return Session(Impl::of_units(units, options_of(options), std::move(sinks)));
}

Session Session::open_units(const std::vector<Unit>& units, const std::string& options,
                            Sinks sinks) {
  return Session(Impl::of_units(units, session::unit_options(options), std::move(sinks)));
}

void Session::order(const std::vector<UsedUnits>& uses, bool may_leave_out) {
  impl("order").require({SessionKind::kUnits}, "order");
  const Environment::Scope scope(&impl_->environment_);
  if (impl_->plan_) {
    throw Error(ErrorCode::kUsage, "order: there is a plan already (declare the order before it)");
  }
  const double flops_per_s = session::unit_rates(impl_->options_).matmul_flops_per_s;
  std::vector<model::ExternalUse> order;
  for (const UsedUnits& use : uses) {
    if (!(use.seconds >= 0) || !std::isfinite(use.seconds)) {
      throw Error(ErrorCode::kConfig, fmt::format("order: use {}: {} seconds (give 0 or more)",
                                                  order.size(), use.seconds));
    }
    order.push_back({use.units, use.pass == UnitPass::kBackward, use.seconds * flops_per_s});
  }
  model::set_uses(std::move(order), impl_->spec_);
  impl_->may_leave_out_ = may_leave_out;
}

void Session::join(const RankPlace& place) {
  impl("join").require({SessionKind::kUnits}, "join");
  const Environment::Scope scope(&impl_->environment_);
  impl_->join(place);
}

void Session::load(const InitialWeights& initial, const std::string& checkpoint) {
  impl("load").require({SessionKind::kUnits}, "load");
  const Environment::Scope scope(&impl_->environment_);
  impl_->load(checkpoint, {.weights = initial});
}

void Session::load(const InitialState& initial) {
  impl("load").require({SessionKind::kUnits}, "load");
  if (initial.updates < 0) {
    throw Error(ErrorCode::kConfig,
                fmt::format("load: updates: {}: is not a count (give 0 or more)", initial.updates));
  }
  const Environment::Scope scope(&impl_->environment_);
  impl_->load("", initial);
}

void Session::begin(double lr) {
  impl("begin").require({SessionKind::kUnits}, "begin");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live_for(Impl::Call::kBegin).begin(lr);
}

void Session::begin() {
  impl("begin").require({SessionKind::kUnits}, "begin");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live_for(Impl::Call::kBegin).begin();
}

UnitUse Session::acquire(int unit, UnitPass pass, const UseMode& mode) {
  impl("acquire").require({SessionKind::kUnits}, "acquire");
  const Environment::Scope scope(&impl_->environment_);
  return use_of(impl_->live("acquire").acquire(
      unit, pass == UnitPass::kForward ? exec::Pass::kForward : exec::Pass::kBackward,
      {.stream = mode.stream, .zeroes = mode.zeroes}));
}

std::vector<int> Session::acquired() const {
  impl("acquired").require({SessionKind::kUnits}, "acquired");
  return impl_->live("acquired").acquired();
}

UnitUse Session::used(int unit) {
  impl("used").require({SessionKind::kUnits}, "used");
  const Environment::Scope scope(&impl_->environment_);
  return use_of(impl_->live("used").used(unit));
}

void Session::copy(void* to, const void* from, int64_t bytes) {
  impl("copy").require({SessionKind::kUnits}, "copy");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("copy").copy(to, from, bytes);
}

void Session::end_micro_batch() {
  impl("end_micro_batch").require({SessionKind::kUnits}, "end_micro_batch");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("end_micro_batch").end_micro_batch();
}

void Session::begin_forward() {
  impl("begin_forward").require({SessionKind::kUnits}, "begin_forward");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live_for(Impl::Call::kBeginForward).begin_forward();
}

void Session::end_forward() {
  impl("end_forward").require({SessionKind::kUnits}, "end_forward");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("end_forward").end_forward();
}

std::vector<double> Session::use_seconds() {
  impl("use_seconds").require({SessionKind::kUnits}, "use_seconds");
  return impl_->live("use_seconds").use_seconds();
}

void Session::release() {
  impl("release").require({SessionKind::kUnits}, "release");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("release").release();
}

StepResult Session::end(const UpdateSettings& settings) {
  impl("end").require({SessionKind::kUnits}, "end");
  const Environment::Scope scope(&impl_->environment_);
  session::Live& live = impl_->live("end");
  exec::StepSettings step = live.settings();
  step.lr = settings.lr;
  step.clip = settings.clip.value_or(step.clip);
  step.weight_decay = settings.weight_decay.value_or(step.weight_decay);
  for (double value : {step.clip, step.weight_decay}) {
    if (std::isfinite(value) && value >= 0) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("step: clip {} and weight_decay {}: out of range (give finite numbers "
                            "from 0)",
                            step.clip, step.weight_decay));
  }
  step.gradient_scale = settings.gradient_scale;
  check_scale(step.gradient_scale);
  return Impl::result_of(live, live.end(step, given_groups(impl_->spec_, settings)));
}

void Session::discard() {
  impl("discard").require({SessionKind::kUnits}, "discard");
  const Environment::Scope scope(&impl_->environment_);
  impl_->live("discard").discard();
}

TensorPlace Session::place(int unit, int tensor) const {
  impl("place").require({SessionKind::kUnits}, "place");
  const auto in = [](int index, const auto& list) {
    return index >= 0 && index < static_cast<int>(list.size());
  };
  const std::vector<model::Segment>& segments = impl_->spec_.segments;
  if (!in(unit, segments) || !in(tensor, segments[static_cast<size_t>(unit)].parameters)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("tensor {} of unit {}: is not declared (give numbers from 0, in the "
                            "order of the declaration)",
                            tensor, unit));
  }
  const model::Parameter& parameter =
      segments[static_cast<size_t>(unit)].parameters[static_cast<size_t>(tensor)];
  return {parameter.offset, parameter.numel, parameter.frozen};
}

void Session::read(StatePlane plane, const StateVisitor& visitor) {
  impl("read").require({SessionKind::kUnits}, "read");
  const Environment::Scope scope(&impl_->environment_);
  impl_->read(plane, visitor);
}

void Session::write(StatePlane plane, int unit, int tensor, int64_t first,
                    std::span<const float> values) {
  impl("write").require({SessionKind::kUnits}, "write");
  const Environment::Scope scope(&impl_->environment_);
  const TensorPlace in = place(unit, tensor);
  const int64_t count = std::ssize(values);
  if (in.frozen || first < 0 || first > in.count - count) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("write: tensor {} of unit {}: {} elements from element {}: it has {}{} "
                    "(give a range within a trained tensor)",
                    tensor, unit, count, first, in.count, in.frozen ? " and is frozen" : ""));
  }
  impl_->write(plane, {.segment = unit, .first = in.offset + first, .values = values});
}

UnitStatistics Session::statistics() {
  impl("statistics").require({SessionKind::kUnits}, "statistics");
  const session::Live& live = impl_->live("statistics");
  live.require_no_step("statistics");
  const auto planned = [&](plan::Arena arena) {
    return impl_->plan().ranks.front().arenas.bytes[static_cast<size_t>(arena)];
  };
  const exec::IoTotals io = live.executor().io_totals();
  UnitStatistics statistics = {.steps = live.step(),
                               .updates = live.updates(),
                               .host_bytes = planned(plan::Arena::kHost),
                               .device_bytes = planned(plan::Arena::kDevice),
                               .nvme_bytes = planned(plan::Arena::kNvme),
                               .nvme_bytes_read = io.bytes_read,
                               .nvme_bytes_written = io.bytes_written,
                               .io = live.executor().io_backend()};
  if (const exec::Instance* last = live.last(); last != nullptr) {
    statistics.last_step_s = last->end_s - last->begin_s;
    for (double stall_s : last->stall_s) statistics.last_stall_s += stall_s;
  }
  return statistics;
}

}  // namespace strata

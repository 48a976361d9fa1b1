// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/queue_work.h"

#include "engine/base/clock.h"

namespace strata::exec {
namespace {

constexpr double kSleep_s = 0.5;  // so that a stop is noticed; wake() ends a sleep at once

}  // namespace

Executor::Impl::QueueWork::QueueWork(Impl& impl, plan::Lane lane)
    : impl_(impl),
      lane_(lane),
      on_device_(impl.on_device(lane)),
      queue_(*impl.queues_[static_cast<size_t>(lane)]) {}

void Executor::Impl::QueueWork::start(InFlight& one) {
  const plan::Op& op = *one.op;
  Instance& instance = *one.instance;
  const plan::Program& program = impl_.program_of(instance);
  ranges_.clear();
  if (on_device_) {
    impl_.wait_on_queue(queue_, lane_, instance, op);
    for (const plan::Access& access : program.accesses_of(op)) {
      if (!one.runs || access.value.kind == plan::ValueKind::kDecision) continue;
      ranges_.push_back({impl_.at(access), access.bytes, access.mode == plan::Mode::kWrite});
    }
  }
  name_ = name_of(op, impl_.spec_);
  queue_.begin(name_.data(), ranges_);
  if (one.runs) impl_.execute(op, instance);
  one.ticket = queue_.end();
}

bool Executor::Impl::QueueWork::is_done(InFlight& one) {
  return queue_.completed() >= one.ticket;
}

// On a device an op begins some time after it was issued. The idle time of the compute queue before
// that is time in which it waited for another lane.
void Executor::Impl::QueueWork::finish(InFlight& one) {
  one.end_s = now_s();
  if (!on_device_) return;
  const kernels::Queue::Span span = queue_.span_of(one.ticket);
  one.begin_s = span.begin_s;
  one.end_s = span.end_s;
  if (lane_ == plan::Lane::kCompute && last_end_s_ > 0 && one.begin_s > last_end_s_) {
    const auto waits = impl_.program_of(*one.instance).waits_of(*one.op);
    const plan::Lane lane = waits.empty() ? plan::Lane::kUpload : waits.back().lane;
    impl_.record_stall(*one.instance, {lane, last_end_s_, one.begin_s});
  }
  last_end_s_ = one.end_s;
}

void Executor::Impl::QueueWork::sleep(const InFlight& oldest) {
  queue_.sleep(oldest.ticket, kSleep_s);
}

void Executor::Impl::wait_on_queue(kernels::Queue& queue, plan::Lane lane, const Instance& instance,
                                   const plan::Op& op) {
  for (const plan::Wait& wait : program_of(instance).waits_of(op)) {
    const Progress::Target target = target_of(lane, instance, wait);
    const bool is_completed = progress_.published(wait.lane) >= target.count;
    if (target.stage == Stage::kCompleted || is_completed) continue;
    queue.wait(*queues_[index_of(wait.lane)], target.count);
  }
}

void Executor::Impl::execute(const plan::Op& op, Instance& instance) {
  switch (op.kind) {
    case plan::OpKind::kUpload:
    case plan::OpKind::kDownload:
      return run_copy(op, instance);
    case plan::OpKind::kGather:
    case plan::OpKind::kReduce:
    case plan::OpKind::kAllToAll:
    case plan::OpKind::kSend:
    case plan::OpKind::kRecv:
      return run_between_ranks(op, instance);
    case plan::OpKind::kConvert:
      return run_convert(op, instance);
    case plan::OpKind::kSave:
      return run_save(op, instance);
    case plan::OpKind::kNormPartial:
      return run_norm(op, instance);
    case plan::OpKind::kDecide:
      return run_decide(op, instance);
    case plan::OpKind::kOptimize:
      return run_optimize(op, instance);
    case plan::OpKind::kInput:
      return run_input(op, instance);
    case plan::OpKind::kOutput:
      return run_output(op, instance);
    default:
      return run_compute(op, instance);
  }
}

}  // namespace strata::exec

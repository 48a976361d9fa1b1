// SPDX-License-Identifier: Apache-2.0
// The compute lane for a caller that has its own forward and backward: ready() and done() drive the
// lane instead of a thread of ours.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/exec/executor_impl.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Lane;
using plan::Mode;
using plan::OpKind;
using plan::ValueKind;

constexpr size_t kCompute = static_cast<size_t>(Lane::kCompute);

const char* name_of(OpKind kind) {
  return kind == OpKind::kForward ? "forward" : "backward";
}

}  // namespace

// The submitted program that has the caller's next pass; skips programs without passes.
Instance& Executor::Impl::external_instance() {
  STRATA_CHECK(options_.external);
  while (true) {
    Instance* instance = instance_at(external_.sequence);
    if (instance == nullptr && external_.sequence >= submitted_.load()) {
      throw Error(ErrorCode::kConfig,
                  "external compute: ready() without a submitted program (submit a step first)");
    }
    if (instance && !program_of(*instance).lanes[kCompute].empty()) return *instance;
    ++external_.sequence;
  }
}

const plan::Op& Executor::Impl::external_op() {
  const plan::Program& program = program_of(external_instance());
  return program.ops[program.lanes[kCompute][external_.position]];
}

Executor::NextUse Executor::Impl::next_use() {
  const plan::Op& op = external_op();
  return {op.part, op.micro_batch};
}

SegmentUse Executor::Impl::ready(int segment, Pass pass) {
  const plan::Op& op = external_op();
  const OpKind wanted = pass == Pass::kForward ? OpKind::kForward : OpKind::kBackward;
  if (op.segment != segment || op.kind != wanted) {
    const auto name = [&](int s) {
      return s >= 0 && s < static_cast<int>(spec_.segments.size()) ? spec_.segments[s].name
                                                                   : std::to_string(s);
    };
    throw Error(
        ErrorCode::kConfig,
        fmt::format("external compute: {} of {} was asked for, but the declared sequence has {} "
                    "of {} next (declare the sequence that is used)",
                    name_of(wanted), name(segment), name_of(op.kind), name(op.segment)));
  }
  await_use();
  return used(segment);
}

// Returns when the next use has its weights and, in backward, places for its gradients.
void Executor::Impl::await_use() {
  Instance& instance = external_instance();
  const plan::Op& op = external_op();
  progress_.start_clock();
  try {
    while (const auto target = unmet_wait(Lane::kCompute, instance, op)) {
      await(Lane::kCompute, instance, *target);
    }
  } catch (const Progress::Stopped&) {
    if (progress_.failure()) std::rethrow_exception(progress_.failure());
    throw Error(ErrorCode::kInterrupted, "external compute: the executor was stopped");
  }
  progress_.stop_clock();
  external_begin_s_ = now_s();
}

SegmentUse Executor::Impl::used(int segment) {
  const plan::Program& program = program_of(external_instance());
  SegmentUse use;
  for (const Access& access : program.accesses_of(external_op())) {
    if (access.value.segment != segment) continue;
    std::byte* base = at(access.arena, access.offset - access.first);
    if (access.value.kind == ValueKind::kPlane) use.weights = base;
    if (access.value.kind != ValueKind::kGradient || access.mode != Mode::kWrite) continue;
    use.gradient = reinterpret_cast<float*>(base);
    use.gradient_first = access.value.index == 1;
  }
  return use;
}

void Executor::Impl::skip() {
  await_use();
  for (const int segment : spec_.uses[external_op().part].segments) {
    const SegmentUse use = used(segment);
    if (use.gradient == nullptr || !use.gradient_first) continue;
    std::fill_n(use.gradient, spec_.segments[segment].trainable_numel, 0.0f);
  }
  done();
}

void Executor::Impl::done() {
  Instance& instance = external_instance();
  const plan::Program& program = program_of(instance);
  const auto& ops = program.lanes[kCompute];
  record(instance, Lane::kCompute, {ops[external_.position], external_begin_s_, now_s()});
  progress_.publish(Lane::kCompute);
  if (++external_.position < ops.size()) return;
  external_.position = 0;
  ++external_.sequence;
  finish_lane(instance);
}

void Executor::Impl::decide(Instance& instance) {
  instance.may_decide.store(true);
  progress_.notify();
}

}  // namespace strata::exec

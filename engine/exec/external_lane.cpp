// SPDX-License-Identifier: Apache-2.0
// The compute lane for a caller that has its own forward and backward: ready() and done() drive the
// lane instead of a thread of ours.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/exec/device_uses.h"

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
      throw Error(ErrorCode::kConfig, "acquire: no step or forward has begun (begin one first)");
    }
    const bool is_next = instance != nullptr && instance->sequence == external_.sequence;
    if (is_next && !program_of(*instance).lanes[kCompute].empty()) return *instance;
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

SegmentUse Executor::Impl::ready(int segment, Pass pass, const UseMode& mode) {
  const plan::Op& op = external_op();
  const OpKind wanted = pass == Pass::kForward ? OpKind::kForward : OpKind::kBackward;
  if (op.segment != segment || op.kind != wanted) {
    const auto name = [&](int s) {
      return s >= 0 && s < static_cast<int>(spec_.segments.size()) ? spec_.segments[s].name
                                                                   : std::to_string(s);
    };
    throw Error(
        ErrorCode::kConfig,
        fmt::format("acquire: {} of {} was asked for, but the order has {} of {} next (acquire in "
                    "the order, or declare the one that is used)",
                    name_of(wanted), name(segment), name_of(op.kind), name(op.segment)));
  }
  open_use(mode, false);
  if (device_uses_) while_lanes_work([&] { device_uses_->give(); });
  return used(segment);
}

// Calls what waits for lanes while their clock runs.
template <typename Call>
void Executor::Impl::while_lanes_work(const Call& call) {
  progress_.start_clock();
  try {
    call();
  } catch (const Progress::Stopped&) {
    if (progress_.failure()) std::rethrow_exception(progress_.failure());
    throw Error(ErrorCode::kInterrupted, "units: a wait for their memory was stopped");
  }
  progress_.stop_clock();
}

// Returns when the next use has its weights and, in backward, places for its gradients.
void Executor::Impl::open_use(const UseMode& mode, bool clears_all) {
  Instance& instance = external_instance();
  const plan::Op& op = external_op();
  zeroes_ = mode.zeroes;
  while_lanes_work([&] {
    while (const auto target = unmet_wait(Lane::kCompute, instance, op)) {
      await(Lane::kCompute, instance, *target);
    }
    const bool zeroes = mode.zeroes || clears_all;
    device_uses_ ? device_uses_->open(instance, op, mode.stream, zeroes)
                 : clear_gradients(op, zeroes);
  });
  external_begin_s_ = now_s();
}

// Of gradients that this use is the first to add to: all, or what lies between parameters. A norm
// is over a segment's whole buffer, and the caller writes only where parameters are.
void Executor::Impl::clear_gradients(const plan::Op& op, bool all) {
  const auto clear = [&](float* from, float* to) {
    if (from == to) return;
    device_uses_ ? device_uses_->fill_zeros(from, to - from) : std::fill(from, to, 0.0f);
  };
  for (const int s : spec_.uses[op.part].segments) {
    const SegmentUse use = buffers_of(s);
    float* gradient = use.gradient;
    if (gradient == nullptr || !use.gradient_first) continue;
    const model::Segment& segment = spec_.segments[s];
    float* end = gradient;
    for (const model::Parameter& parameter : segment.parameters) {
      if (all || parameter.frozen) continue;
      clear(end, gradient + parameter.offset);
      end = gradient + parameter.offset + parameter.numel;
    }
    clear(end, gradient + segment.trainable_numel);
  }
}

SegmentUse Executor::Impl::buffers_of(int segment) {
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

SegmentUse Executor::Impl::used(int segment) {
  SegmentUse use = buffers_of(segment);
  use.gradient_first = use.gradient_first && !zeroes_;
  return use;
}

// Adjacent accesses count as one.
bool Executor::Impl::lies_in_use(const void* data, int64_t bytes, plan::Mode mode) {
  const auto accesses = program_of(external_instance()).accesses_of(external_op());
  const auto* here = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const auto access = std::ranges::find_if(accesses, [&](const Access& one) {
      const bool is_right = mode == Mode::kRead || one.mode == Mode::kWrite;
      return is_right && here >= at(one) && here < at(one) + one.bytes;
    });
    if (access == accesses.end()) return false;
    const int64_t covered = at(*access) + access->bytes - here;
    here += covered;
    bytes -= covered;
  }
  return true;
}

void Executor::Impl::copy(void* to, const void* from, int64_t bytes) {
  const bool takes = lies_in_use(from, bytes, Mode::kRead);
  if (takes == lies_in_use(to, bytes, Mode::kWrite)) {
    throw Error(ErrorCode::kUsage,
                takes ? "copy: both addresses lie in the unit (give one of the caller's)"
                      : "copy: the bytes do not lie in the acquired unit (give an address of its "
                        "weights or its gradient to read, or of its gradient to write)");
  }
  if (!device_uses_) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  while_lanes_work([&] {
    device_uses_->copy(external_instance(), external_op(), {to, from, bytes, takes});
  });
}

void Executor::Impl::skip() {
  open_use({}, true);
  close_use(true);
}

void Executor::Impl::close_use(bool is_skipped) {
  Instance& instance = external_instance();
  const auto& ops = program_of(instance).lanes[kCompute];
  const uint32_t op = ops[external_.position];
  const bool is_last = external_.position + 1 == ops.size();
  if (device_uses_) {
    while_lanes_work([&] { device_uses_->close(instance, op, is_skipped, is_last); });
  }
  external_ = is_last ? Cursor{external_.sequence + 1, 0}
                      : Cursor{external_.sequence, external_.position + 1};
  if (!device_uses_) finish_use(instance, {op, external_begin_s_, now_s()}, is_skipped, is_last);
}

void Executor::Impl::finish_use(Instance& instance, const MeasuredTime& time, bool is_skipped,
                                bool is_last) {
  record(instance, Lane::kCompute, time);
  const int use = program_of(instance).ops[time.op].part;
  if (!is_skipped) instance.use_s[static_cast<size_t>(use)] += time.end_s - time.begin_s;
  progress_.publish(Lane::kCompute);
  if (is_last) finish_lane(instance);
}

void Executor::Impl::decide(Instance& instance) {
  instance.may_decide.store(true);
  progress_.notify();
}

}  // namespace strata::exec

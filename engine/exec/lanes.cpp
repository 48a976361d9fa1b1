// SPDX-License-Identifier: Apache-2.0
// The driver of all lanes: issues a lane's ops in plan order when their waits hold, keeps up to the
// lane's depth in flight, and publishes them in plan order.
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/exec/device_uses.h"
#include "engine/exec/op_access.h"

namespace strata::exec {
namespace {

using plan::Lane;

}  // namespace

// Every lane belongs to one place: the host, or one queue of the device.
bool Executor::Impl::on_device(Lane lane) const {
  return kernels::has_queues(plan_.device) && plan::is_device_lane(lane);
}

// Whether the lane's ops are arithmetic of the host's processors, which cannot hang.
bool Executor::Impl::does_arithmetic(Lane lane) const {
  return plan::is_arithmetic_lane(lane) &&
         device_of(lane).description().kernels != kernels::KernelSet::kCuda;
}

void Executor::Impl::lane_main(Lane lane) {
  try {
    device_uses_&& lane == Lane::kCompute ? device_uses_->publish() : run_lane(lane);
  } catch (const Progress::Stopped&) {
    // The run has ended.
  } catch (...) {
    for (InFlight& one : in_flight_[index_of(lane)]) one.arithmetic.reset();
    // Recorded before other lanes of this rank fail because of their groups.
    progress_.fail(std::current_exception());
    abort_all(options_.groups, strata::text_of(std::current_exception()).c_str());
  }
}

void Executor::Impl::run_lane(Lane lane) {
  Cursor cursor;
  std::deque<InFlight*> in_flight;
  while (true) {
    bool issued = false;
    // After an op that was done while it was issued, earlier ops may be ready to publish.
    while (issue_next(lane, cursor, in_flight)) {
      issued = true;
      if (in_flight.back()->took_time) break;
    }
    const bool retired = retire(lane, in_flight);
    if (!issued && !retired) sleep(lane, cursor, in_flight);
  }
}

// A wait for a lane of the same device holds when that lane has issued its op; the queue waits for
// its completion.
Progress::Target Executor::Impl::target_of(Lane lane, const Instance& instance,
                                           const plan::Wait& wait) const {
  const bool same_device = on_device(lane) && on_device(wait.lane);
  return {wait.lane, instance.base[index_of(wait.lane)] + wait.count,
          same_device ? Stage::kIssued : Stage::kCompleted};
}

// The first wait of an op that does not hold yet. An op that is skipped waits too: later ops of its
// lane inherit its waits.
std::optional<Progress::Target> Executor::Impl::unmet_wait(Lane lane, const Instance& instance,
                                                           const plan::Op& op) const {
  for (const plan::Wait& wait : program_of(instance).waits_of(op)) {
    const Progress::Target target = target_of(lane, instance, wait);
    if (!progress_.reached(target)) return target;
  }
  return {};
}

// What the lane's next op waits for; the end of an instance waits for nothing.
std::optional<Progress::Target> Executor::Impl::unmet_wait(Lane lane, const Cursor& cursor) const {
  const Instance& instance = *instance_at(cursor.sequence);
  const plan::Program& program = program_of(instance);
  const auto& ops = program.lanes[index_of(lane)];
  if (cursor.position == ops.size()) return {};
  return unmet_wait(lane, instance, program.ops[ops[cursor.position]]);
}

bool Executor::Impl::runs(const plan::Op& op, const Instance& instance) const {
  return op.predicate == plan::Predicate::kAlways || decision_of(op, instance).valid;
}

// At most `depth` ops are issued and not published; ends of instances do not count.
bool Executor::Impl::has_room(Lane lane, const std::deque<InFlight*>& in_flight) const {
  if (in_flight.size() >= in_flight_[index_of(lane)].size()) return false;
  int ops = 0;
  for (const InFlight* one : in_flight) ops += one->op != nullptr;
  return ops < works_[index_of(lane)]->depth();
}

bool Executor::Impl::issue_next(Lane lane, Cursor& cursor, std::deque<InFlight*>& in_flight) {
  if (!has_room(lane, in_flight) || instance_at(cursor.sequence) == nullptr) return false;
  if (unmet_wait(lane, cursor)) return false;
  InFlight* free = nullptr;
  for (InFlight& candidate : in_flight_[index_of(lane)]) {
    if (candidate.instance == nullptr) free = &candidate;
  }
  STRATA_CHECK(free != nullptr);
  Instance& instance = *instance_at(cursor.sequence);
  const plan::Program& program = program_of(instance);
  const auto& ops = program.lanes[index_of(lane)];
  free->instance = &instance;
  free->took_time = false;
  in_flight.push_back(free);
  if (cursor.position == ops.size()) {
    free->op = nullptr;
    ++cursor.sequence;
    cursor.position = 0;
    return true;
  }
  free->index = ops[cursor.position++];
  free->op = &program.ops[free->index];
  free->runs = runs(*free->op, instance);
  free->begin_s = now_s();
  if (does_arithmetic(lane)) free->arithmetic.emplace(progress_);
  works_[index_of(lane)]->start(*free);
  if (on_device(lane)) progress_.publish(lane, Stage::kIssued);
  return true;
}

// Publishes completed ops, in plan order.
bool Executor::Impl::retire(Lane lane, std::deque<InFlight*>& in_flight) {
  bool any = false;
  while (!in_flight.empty()) {
    InFlight& front = *in_flight.front();
    Instance& instance = *front.instance;
    if (front.op == nullptr) {
      finish_lane(instance);
    } else {
      if (!works_[index_of(lane)]->is_done(front)) return any;
      works_[index_of(lane)]->finish(front);
      if (front.runs) record(instance, lane, {front.index, front.begin_s, front.end_s});
      progress_.publish(lane);
      front.arithmetic.reset();
    }
    front.instance = nullptr;
    in_flight.pop_front();
    any = true;
  }
  return any;
}

// Sleeps until a target is reached. Records the time if the compute lane waits.
void Executor::Impl::await(Lane lane, Instance& instance, const Progress::Target& target) {
  // I/O lanes wait without a deadline: the deadline of requests reports a hanging drive, and the
  // waits of other lanes report any other hang.
  const auto limit =
      plan::is_io_lane(lane) ? Progress::TimeLimit::kNone : Progress::TimeLimit::kDeadline;
  const double begin_s = now_s();
  progress_.wait(target, limit);
  // On a device the lane that waits is ahead of its queue, whose idle time counts (queue_work.cpp).
  if (lane == Lane::kCompute && !on_device(lane)) {
    record_stall(instance, {target.lane, begin_s, now_s()});
  }
}

void Executor::Impl::sleep(Lane lane, const Cursor& cursor,
                           const std::deque<InFlight*>& in_flight) {
  const auto is_submitted = [&] { return instance_at(cursor.sequence) != nullptr; };
  if (in_flight.empty()) {
    progress_.wait_until(is_submitted);
    const auto target = unmet_wait(lane, cursor);
    if (target) await(lane, *instance_at(cursor.sequence), *target);
    return;
  }
  // Sleeps where its ops complete; the lane that the next op waits for wakes it there.
  std::optional<Progress::Target> target;
  const bool may_issue = has_room(lane, in_flight) && is_submitted();
  if (may_issue) target = unmet_wait(lane, cursor);
  if (may_issue && !target) return;
  progress_.begin_sleep(lane, target);
  const bool changed =
      target ? progress_.reached(*target) : has_room(lane, in_flight) && is_submitted();
  if (!changed && !progress_.stopped()) works_[index_of(lane)]->sleep(*in_flight.front());
  progress_.end_sleep(lane);
  if (progress_.stopped()) throw Progress::Stopped{};
}

}  // namespace strata::exec

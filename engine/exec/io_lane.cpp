// SPDX-License-Identifier: Apache-2.0
// The lanes that move bytes between host memory and NVMe: several ops in flight, published in
// order.
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/op_access.h"

namespace strata::exec {
namespace {

using plan::Lane;
using plan::ValueKind;

constexpr double kPollTimeout = 0.5;  // only so that a stop is seen; wake() ends a wait at once

size_t index_of(Lane lane) {
  return static_cast<size_t>(lane);
}

// What a block's checksum is seeded with: the object that the bytes belong to.
uint64_t tag_of(const plan::Value& value) {
  const bool weights = value.kind == ValueKind::kPlane && value.plane == plan::Plane::kHi;
  const uint64_t object = value.kind == ValueKind::kGradient ? 2 : weights ? 0 : 1;
  return static_cast<uint64_t>(value.segment) * 4 + object + 1;
}

// Whether an op was not moved by the channel, but done when it was issued.
bool is_convert(const plan::Op* op) {
  return op != nullptr && op->kind == plan::OpKind::kConvert;
}

}  // namespace

// Moves that continue each other on both sides are one transfer.
void Executor::Impl::prepare(const plan::Op& op, const plan::Program& program,
                             Moving& moving) const {
  const bool fetch = op.kind == plan::OpKind::kFetch;
  size_t count = 0;
  for_each_move(program.accesses_of(op), [&](const plan::Access& read, const plan::Access& to) {
    const auto address = static_cast<uint64_t>(fetch ? read.offset : to.offset);
    std::byte* data = at(fetch ? to : read);
    const uint64_t tag = tag_of(read.value);
    if (count > 0) {
      io::Transfer& last = moving.transfers[count - 1];
      if (last.address + last.bytes == address && last.tag == tag &&
          static_cast<std::byte*>(last.data) + last.bytes == data) {
        last.bytes += static_cast<uint64_t>(read.bytes);
        return;
      }
    }
    if (moving.transfers.size() <= count) moving.transfers.emplace_back();
    io::Transfer& transfer = moving.transfers[count++];
    transfer.direction = fetch ? io::Direction::kRead : io::Direction::kWrite;
    transfer.address = address;
    transfer.bytes = static_cast<uint64_t>(read.bytes);
    transfer.data = data;
    transfer.tag = tag;
    transfer.done = false;
    transfer.error.reset();
  });
  moving.transfer_count = count;
}

// What the lane's next op waits for; the end of an instance waits for nothing.
std::optional<Progress::Target> Executor::Impl::unmet_wait(Lane lane, const Cursor& cursor) const {
  const Instance& instance = *instance_at(cursor.sequence);
  const plan::Program& program = program_of(instance);
  const auto& ops = program.lanes[index_of(lane)];
  if (cursor.position == ops.size()) return {};
  return unmet_wait(instance, program.ops[ops[cursor.position]]);
}

// At most io_depth ops are issued and not published; ends of instances come on top.
bool Executor::Impl::has_room(Lane lane, const std::deque<Moving*>& moving) const {
  if (moving.size() >= moving_[index_of(lane)].size()) return false;
  int ops = 0;
  for (const Moving* one : moving) ops += one->op != nullptr;
  return ops < plan_.io_depth;
}

bool Executor::Impl::issue_next(Lane lane, Cursor& cursor, std::deque<Moving*>& moving) {
  std::vector<Moving>& pool = moving_[index_of(lane)];
  if (!has_room(lane, moving) || instance_at(cursor.sequence) == nullptr) return false;
  if (unmet_wait(lane, cursor)) return false;
  Moving* free = nullptr;
  for (Moving& candidate : pool) {
    if (candidate.instance == nullptr) free = &candidate;
  }
  STRATA_CHECK(free != nullptr);
  Instance& instance = *instance_at(cursor.sequence);
  const plan::Program& program = program_of(instance);
  const auto& ops = program.lanes[index_of(lane)];
  free->instance = &instance;
  free->begin_s = now_s();
  free->transfer_count = 0;
  moving.push_back(free);
  if (cursor.position == ops.size()) {
    free->op = nullptr;
    ++cursor.sequence;
    cursor.position = 0;
    return true;
  }
  free->index = ops[cursor.position++];
  free->op = &program.ops[free->index];
  if (!runs(*free->op)) return true;
  if (is_convert(free->op)) {
    run_convert(*free->op, instance);
    return true;
  }
  prepare(*free->op, program, *free);
  for (size_t i = 0; i < free->transfer_count; ++i) {
    channels_[index_of(lane)]->submit(&free->transfers[i]);
  }
  return true;
}

// Publishes what is complete, in plan order.
bool Executor::Impl::retire(Lane lane, std::deque<Moving*>& moving) {
  bool any = false;
  while (!moving.empty()) {
    Moving& front = *moving.front();
    for (size_t i = 0; i < front.transfer_count; ++i) {
      if (!front.transfers[i].done) return any;
      if (front.transfers[i].error) throw Error(*front.transfers[i].error);
    }
    Instance& instance = *front.instance;
    if (front.op == nullptr) {
      finish_lane(instance);
    } else {
      const bool converts = is_convert(front.op);
      int64_t bytes = converts ? front.op->bytes : 0;
      for (size_t i = 0; i < front.transfer_count; ++i) {
        bytes += static_cast<int64_t>(front.transfers[i].bytes);
      }
      instance.nvme_bytes[index_of(lane)] += bytes;
      if (front.transfer_count > 0 || converts)
        record(instance, lane, {front.index, front.begin_s, now_s()});
      progress_.publish(lane);
    }
    front.instance = nullptr;
    moving.pop_front();
    any = true;
  }
  return any;
}

void Executor::Impl::sleep_io(Lane lane, const Cursor& cursor, const std::deque<Moving*>& moving) {
  const auto is_submitted = [&] { return instance_at(cursor.sequence) != nullptr; };
  if (moving.empty()) {
    progress_.wait_until(is_submitted);
    const auto target = unmet_wait(lane, cursor);
    if (target) progress_.wait(*target, Progress::Patience::kEndless);
    return;
  }
  // Asleep in the ring: what the next op waits for rings there.
  std::optional<Progress::Target> target;
  const bool may_issue = has_room(lane, moving) && is_submitted();
  if (may_issue) target = unmet_wait(lane, cursor);
  if (may_issue && !target) return;
  progress_.sleep_elsewhere(lane, target);
  const bool changed = target ? progress_.reached(target->lane, target->count)
                              : has_room(lane, moving) && is_submitted();
  if (!changed && !progress_.stopped()) channels_[index_of(lane)]->wait(kPollTimeout);
  progress_.awake_again(lane);
  if (progress_.stopped()) throw Progress::Stopped{};
}

void Executor::Impl::run_io(Lane lane) {
  io::Channel* channel = channels_[index_of(lane)].get();
  Cursor cursor;
  std::deque<Moving*> moving;
  while (true) {
    bool moved = false;
    while (issue_next(lane, cursor, moving)) {
      moved = true;
      if (is_convert(moving.back()->op)) break;  // it took its time: others may be complete
    }
    if (channel && channel->in_flight() > 0) channel->poll();
    moved = retire(lane, moving) || moved;
    if (!moved) sleep_io(lane, cursor, moving);
  }
}

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#include "kernels/emulated/queue_emulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace strata::kernels::emulated {
namespace {

const std::byte* begin_of(const MemoryRange& range) {
  return static_cast<const std::byte*>(range.data);
}
const std::byte* end_of(const MemoryRange& range) {
  return begin_of(range) + range.bytes;
}

bool conflict(const MemoryRange& a, const MemoryRange& b) {
  return (a.written || b.written) && begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

// It has no default stream.
EmulatedQueue& queue_of(void* stream) {
  if (stream != nullptr) return static_cast<EmulatedQueue&>(*static_cast<Queue*>(stream));
  throw Error(ErrorCode::kUsage,
              "emulated device: stream: null (give a queue of the device, or acquire without a "
              "stream)");
}

class CheckedView : public HostView {
 public:
  CheckedView(const AddressSpace& space, const OpRanges& open) : space_(space), open_(open) {}
  void* at(void* address, int64_t bytes, bool written) const override {
    open_.check(address, bytes, written);
    void* mapped = space_.mapped(address);
    return mapped != nullptr ? mapped : address;
  }

 private:
  const AddressSpace& space_;
  const OpRanges& open_;
};

}  // namespace

void Shared::enter(Outstanding op, const Clock& known) {
  const std::lock_guard lock(mu);
  for (const Outstanding& other : outstanding) {
    const auto at = known.find(other.queue);
    if (other.queue == op.queue || (at != known.end() && at->second >= other.number)) continue;
    for (const MemoryRange& theirs : other.ranges) {
      for (const MemoryRange& ours : op.ranges) {
        if (!conflict(ours, theirs)) continue;
        throw Error(
            ErrorCode::kDevice,
            fmt::format("emulated device: {} on {} {} bytes that {} on {} {}: nothing says "
                        "which comes first (the plan lacks a wait)",
                        op.name, op.queue->name, ours.written ? "writes" : "reads", other.name,
                        other.queue->name, theirs.written ? "writes" : "reads"));
      }
    }
  }
  outstanding.push_back(std::move(op));
}

void Shared::leave(const QueueState& queue, int64_t number) {
  const std::lock_guard lock(mu);
  std::erase_if(outstanding, [&](const Outstanding& one) {
    return one.queue == &queue && one.number == number;
  });
}

void Shared::leave_all(const QueueState& queue) {
  const std::lock_guard lock(mu);
  std::erase_if(outstanding, [&](const Outstanding& one) { return one.queue == &queue; });
}

QueueState& Shared::add(const char* name, int depth) {
  STRATA_CHECK(depth >= 1);
  const std::lock_guard lock(mu);
  return states.emplace_back(name, depth);
}

EmulatedQueue::EmulatedQueue(Shared& shared, const char* name, int depth)
    : shared_(shared),
      state_(shared.add(name, depth)),
      random_(shared.options.delay_seed ^ std::hash<std::string>()(name)) {
  thread_ = start_thread([this] { run(); });
}

EmulatedQueue::~EmulatedQueue() {
  {
    const std::lock_guard lock(state_.mu);
    state_.stopping = true;
    state_.changed.notify_all();
  }
  thread_.join();
  shared_.leave_all(state_);
}

// --- the thread that issues ---------------------------------------------------------------------

void EmulatedQueue::begin(const char* name, std::span<const MemoryRange> ranges) {
  open_ = {name, state_.name, {ranges.begin(), ranges.end()}};
  shared_.enter({&state_, closed_ + 1, name, open_.ranges}, known_);
  push([this] {
    delay();
    op_begin_s_ = now_s();
  });
}

int64_t EmulatedQueue::end() {
  open_.ranges.clear();
  ++closed_;
  {
    const std::lock_guard lock(state_.mu);
    state_.clocks[static_cast<size_t>(closed_) % state_.clocks.size()] = known_;
  }
  push([this] { close_op(); });
  return closed_;
}

void EmulatedQueue::wait(Queue& other, int64_t count) {
  QueueState& queue = static_cast<EmulatedQueue&>(other).state_;
  {
    const std::lock_guard lock(queue.mu);
    for (const auto& [third, number] :
         queue.clocks[static_cast<size_t>(count) % queue.clocks.size()]) {
      known_[third] = std::max(known_[third], number);
    }
  }
  known_[&queue] = std::max(known_[&queue], count);
  push([this, &queue, count] { await_other(queue, count); });
}

void EmulatedQueue::let_wait(void* stream, int64_t count) {
  queue_of(stream).wait(*this, count);
}

void EmulatedQueue::wait_for(void* stream) {
  EmulatedQueue& other = queue_of(stream);
  if (other.closed_ > 0) wait(other, other.closed_);
}

// One side of a copy may be host memory.
void EmulatedQueue::copy(void* to, const void* from, int64_t bytes) {
  const CheckedView view(shared_.space, open_);
  const void* source = view.at(const_cast<void*>(from), bytes, false);
  void* target = view.at(to, bytes, true);
  push([target, source, bytes] { std::memcpy(target, source, static_cast<size_t>(bytes)); });
}

void EmulatedQueue::call(std::function<void(const HostView&)> function) {
  push([this, function = std::move(function), open = open_] {
    function(CheckedView(shared_.space, open));
  });
}

void OpRanges::check(const void* pointer, int64_t bytes, bool written) const {
  const int64_t covered = covered_bytes(ranges, pointer, bytes, written);
  if (covered == bytes) return;
  throw Error(
      ErrorCode::kDevice,
      fmt::format("emulated device: {} on {}: it {} a buffer of {} bytes of which byte {} is "
                  "in no range of its op (the plan lacks an access, or one is too short)",
                  op, queue, written ? "writes" : "reads", bytes, covered));
}

void* EmulatedQueue::translate(const void* pointer, int64_t bytes, bool written) const {
  open_.check(pointer, bytes, written);
  void* mapped = shared_.space.mapped(pointer);
  if (mapped != nullptr) return mapped;
  throw Error(ErrorCode::kDevice,
              fmt::format("emulated device: {} on {}: a kernel {} host memory (the plan lacks an "
                          "upload or a download)",
                          open_.op, open_.queue, written ? "writes" : "reads"));
}

void EmulatedQueue::push(Command command) {
  const std::lock_guard lock(state_.mu);
  if (state_.failure) std::rethrow_exception(state_.failure);
  commands_.push_back(std::move(command));
  state_.changed.notify_all();
}

// --- any thread ---------------------------------------------------------------------------------

int64_t EmulatedQueue::completed() {
  const std::lock_guard lock(state_.mu);
  if (state_.failure) std::rethrow_exception(state_.failure);
  return state_.completed;
}

void EmulatedQueue::sleep(int64_t count, double timeout_s) {
  std::unique_lock lock(state_.mu);
  state_.changed.wait_for(lock, std::chrono::duration<double>(timeout_s),
                          [&] { return state_.reached(count) || state_.woken; });
  state_.woken = false;
}

void EmulatedQueue::wake() {
  const std::lock_guard lock(state_.mu);
  state_.woken = true;
  state_.changed.notify_all();
}

Queue::Span EmulatedQueue::span_of(int64_t count) {
  const std::lock_guard lock(state_.mu);
  return state_.spans[static_cast<size_t>(count) % state_.spans.size()];
}

// --- the thread of the queue --------------------------------------------------------------------

void EmulatedQueue::run() {
  while (true) {
    Command command;
    {
      std::unique_lock lock(state_.mu);
      state_.changed.wait(
          lock, [&] { return state_.stopping || (!commands_.empty() && !state_.failure); });
      if (state_.stopping) return;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    execute(command);
  }
}

void EmulatedQueue::execute(Command& command) {
  try {
    command();
  } catch (...) {
    const std::lock_guard lock(state_.mu);
    state_.failure = std::current_exception();
    state_.changed.notify_all();
  }
}

void EmulatedQueue::close_op() {
  shared_.leave(state_, state_.completed + 1);
  const std::lock_guard lock(state_.mu);
  ++state_.completed;
  state_.spans[static_cast<size_t>(state_.completed) % state_.spans.size()] = {op_begin_s_,
                                                                               now_s()};
  state_.changed.notify_all();
}

void EmulatedQueue::delay() {
  if (shared_.options.delay_s_max <= 0) return;
  std::uniform_real_distribution<double> draw(0, shared_.options.delay_s_max);
  std::unique_lock lock(state_.mu);
  state_.changed.wait_for(lock, std::chrono::duration<double>(draw(random_)),
                          [&] { return state_.stopping; });
}

// Waits in slices, so that this queue can stop while it waits for another.
void EmulatedQueue::await_other(QueueState& other, int64_t count) {
  constexpr std::chrono::milliseconds kSlice{20};
  while (true) {
    {
      std::unique_lock lock(other.mu);
      if (other.changed.wait_for(lock, kSlice, [&] { return other.reached(count); })) {
        if (other.completed >= count) return;
        if (other.failure) std::rethrow_exception(other.failure);
        throw Error(ErrorCode::kDevice,
                    fmt::format("emulated device: {}: queue {} ended before its op {}", state_.name,
                                other.name, count));
      }
    }
    const std::lock_guard lock(state_.mu);
    if (state_.stopping) return;
  }
}

}  // namespace strata::kernels::emulated

namespace strata::kernels {

void call_in_order(Queue& queue, std::function<void(const HostView&)> function) {
  static_cast<emulated::EmulatedQueue&>(queue).call(std::move(function));
}

}  // namespace strata::kernels

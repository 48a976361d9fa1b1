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

class Mapped : public HostView {
 public:
  explicit Mapped(const AddressSpace& space) : space_(space) {}
  void* at(void* address) const override {
    void* mapped = space_.mapped(address);
    return mapped != nullptr ? mapped : address;
  }

 private:
  const AddressSpace& space_;
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
                        op.name, op.queue->name(), ours.written ? "writes" : "reads", other.name,
                        other.queue->name(), theirs.written ? "writes" : "reads"));
      }
    }
  }
  outstanding.push_back(std::move(op));
}

void Shared::leave(const EmulatedQueue& queue, int64_t number) {
  const std::lock_guard lock(mu);
  std::erase_if(outstanding, [&](const Outstanding& one) {
    return one.queue == &queue && one.number == number;
  });
}

EmulatedQueue::EmulatedQueue(Shared& shared, const char* name, int depth)
    : shared_(shared),
      name_(name),
      random_(shared.options.delay_seed ^ std::hash<std::string>()(name)),
      spans_(static_cast<size_t>(2 * depth)),
      clocks_(spans_.size()) {
  STRATA_CHECK(depth >= 1);
  thread_ = start_thread([this] { run(); });
}

EmulatedQueue::~EmulatedQueue() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// --- the thread that issues ---------------------------------------------------------------------

void EmulatedQueue::begin(const char* name, std::span<const MemoryRange> ranges) {
  op_ = name;
  ranges_.assign(ranges.begin(), ranges.end());
  shared_.enter({this, closed_ + 1, op_, ranges_}, known_);
  push([this] {
    delay();
    op_begin_s_ = now_s();
  });
}

int64_t EmulatedQueue::end() {
  ranges_.clear();
  ++closed_;
  {
    const std::lock_guard lock(mu_);
    clocks_[static_cast<size_t>(closed_) % clocks_.size()] = known_;
  }
  push([this] { close_op(); });
  return closed_;
}

void EmulatedQueue::wait(Queue& other, int64_t count) {
  auto& queue = static_cast<EmulatedQueue&>(other);
  {
    const std::lock_guard lock(queue.mu_);
    for (const auto& [third, number] : queue.clocks_[static_cast<size_t>(count) % clocks_.size()]) {
      known_[third] = std::max(known_[third], number);
    }
  }
  known_[&queue] = std::max(known_[&queue], count);
  push([this, &queue, count] { await_other(queue, count); });
}

// One side of a copy may be host memory.
void EmulatedQueue::copy(void* to, const void* from, int64_t bytes) {
  check(from, bytes, false);
  check(to, bytes, true);
  const Mapped view(shared_.space);
  void* target = view.at(to);
  const void* source = view.at(const_cast<void*>(from));
  push([target, source, bytes] { std::memcpy(target, source, static_cast<size_t>(bytes)); });
}

void EmulatedQueue::call(std::function<void(const HostView&)> function) {
  push([this, function = std::move(function)] { function(Mapped(shared_.space)); });
}

// Whether the op may touch the bytes: ranges that lie side by side count as one.
void EmulatedQueue::check(const void* pointer, int64_t bytes, bool written) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::byte* end = at + bytes;
  while (at < end) {
    const std::byte* next = at;
    for (const MemoryRange& range : ranges_) {
      if (written && !range.written) continue;
      if (begin_of(range) <= at && at < end_of(range)) next = std::max(next, end_of(range));
    }
    if (next == at) break;
    at = next;
  }
  if (at >= end) return;
  throw Error(
      ErrorCode::kDevice,
      fmt::format("emulated device: {} on {}: it {} a buffer of {} bytes of which byte {} is "
                  "in no range of its op (the plan lacks an access, or one is too short)",
                  op_, name_, written ? "writes" : "reads", bytes,
                  at - static_cast<const std::byte*>(pointer)));
}

void* EmulatedQueue::translate(const void* pointer, int64_t bytes, bool written) const {
  check(pointer, bytes, written);
  void* mapped = shared_.space.mapped(pointer);
  if (mapped != nullptr) return mapped;
  throw Error(ErrorCode::kDevice,
              fmt::format("emulated device: {} on {}: a kernel {} host memory (the plan lacks an "
                          "upload or a download)",
                          op_, name_, written ? "writes" : "reads"));
}

void EmulatedQueue::push(Command command) {
  const std::lock_guard lock(mu_);
  if (failure_) std::rethrow_exception(failure_);
  commands_.push_back(std::move(command));
  changed_.notify_all();
}

// --- any thread ---------------------------------------------------------------------------------

int64_t EmulatedQueue::completed() {
  const std::lock_guard lock(mu_);
  if (failure_) std::rethrow_exception(failure_);
  return completed_;
}

void EmulatedQueue::sleep(int64_t count, double timeout_s) {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                    [&] { return reached(count) || woken_; });
  woken_ = false;
}

void EmulatedQueue::wake() {
  const std::lock_guard lock(mu_);
  woken_ = true;
  changed_.notify_all();
}

Queue::Span EmulatedQueue::span_of(int64_t count) {
  const std::lock_guard lock(mu_);
  return spans_[static_cast<size_t>(count) % spans_.size()];
}

// --- the thread of the queue --------------------------------------------------------------------

void EmulatedQueue::run() {
  while (true) {
    Command command;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [&] { return stopping_ || (!commands_.empty() && !failure_); });
      if (stopping_) return;
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
    const std::lock_guard lock(mu_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void EmulatedQueue::close_op() {
  shared_.leave(*this, completed_ + 1);
  const std::lock_guard lock(mu_);
  ++completed_;
  spans_[static_cast<size_t>(completed_) % spans_.size()] = {op_begin_s_, now_s()};
  changed_.notify_all();
}

void EmulatedQueue::delay() {
  if (shared_.options.delay_s_max <= 0) return;
  std::uniform_real_distribution<double> draw(0, shared_.options.delay_s_max);
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, std::chrono::duration<double>(draw(random_)), [&] { return stopping_; });
}

// In slices, so that an end of this queue is seen while it waits for another.
void EmulatedQueue::await_other(EmulatedQueue& other, int64_t count) {
  constexpr std::chrono::milliseconds kSlice{20};
  while (true) {
    {
      std::unique_lock lock(other.mu_);
      if (other.changed_.wait_for(lock, kSlice, [&] { return other.reached(count); })) {
        if (other.completed_ >= count) return;
        throw Error(ErrorCode::kDevice,
                    fmt::format("emulated device: {}: queue {} ended before its op {}", name_,
                                other.name_, count));
      }
    }
    const std::lock_guard lock(mu_);
    if (stopping_) return;
  }
}

}  // namespace strata::kernels::emulated

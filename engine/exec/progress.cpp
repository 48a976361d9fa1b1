// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/running_clock.h"
#include "engine/plan/op_contract.h"

namespace strata::exec {

Progress::Progress(double deadline_s) : deadline_s_(deadline_s), last_publish_s_(now_s()) {}

// A sleeper registers its target before it reads the count for the last time, and publish() reads
// the targets after it has raised the count, so at least one of the two notices the other.
void Progress::publish(plan::Lane lane, Stage stage) {
  const size_t index = index_of(lane, stage);
  const int64_t count = counts_[index].fetch_add(1) + 1;
  last_publish_s_.store(now_s(), std::memory_order_relaxed);
  if (Queue& queue = queues_[index]; count >= queue.least.load()) {
    const std::lock_guard lock(mu_);
    queue.reached.notify_all();
  }
  for (Elsewhere& other : elsewhere_) {
    if (!other.asleep.load() || other.counter.load() != index) continue;
    if (count >= other.count.load()) other.wake();
  }
}

void Progress::notify() {
  {
    const std::lock_guard lock(mu_);
    last_publish_s_.store(now_s(), std::memory_order_relaxed);
    notified_.notify_all();
    for (Queue& queue : queues_) queue.reached.notify_all();
  }
  for (Elsewhere& other : elsewhere_) {
    if (other.asleep.load()) other.wake();
  }
}

void Progress::set_wake(plan::Lane lane, std::function<void()> wake) {
  elsewhere_[static_cast<size_t>(lane)].wake = std::move(wake);
}

void Progress::begin_sleep(plan::Lane lane, const std::optional<Target>& target) {
  Elsewhere& self = elsewhere_[static_cast<size_t>(lane)];
  self.counter.store(target ? index_of(target->lane, target->stage) : 0);
  self.count.store(target ? target->count : kNever);
  self.asleep.store(true);
}

void Progress::end_sleep(plan::Lane lane) {
  elsewhere_[static_cast<size_t>(lane)].asleep.store(false);
}

void Progress::join(Queue& queue, int64_t count) {
  queue.targets.push_back(count);
  queue.least.store(*std::min_element(queue.targets.begin(), queue.targets.end()));
}

void Progress::leave(Queue& queue, int64_t count) {
  queue.targets.erase(std::find(queue.targets.begin(), queue.targets.end(), count));
  const auto least = std::min_element(queue.targets.begin(), queue.targets.end());
  queue.least.store(least == queue.targets.end() ? kNever : *least);
}

void Progress::wait(const Target& target, TimeLimit limit) {
  if (reached(target)) return;
  std::unique_lock lock(mu_);
  Queue& queue = queues_[index_of(target.lane, target.stage)];
  join(queue, target.count);
  RunningClock clock(2.0 * std::chrono::duration<double>(kLongestSleep).count());
  double silent_since_s = clock.now_s(), last_publish_s = last_publish_s_.load();
  while (!reached(target) && !stopped()) {
    clock.tick();
    const double before_s = std::exchange(last_publish_s, last_publish_s_.load());
    if (before_s != last_publish_s || does_arithmetic() || !clock_runs_.load()) {
      silent_since_s = clock.now_s();
    }
    const bool is_late = clock.now_s() - silent_since_s > deadline_s_;
    if (is_late && limit == TimeLimit::kDeadline) give_up(target, lock);
    if (!stopped()) queue.reached.wait_for(lock, kLongestSleep);
  }
  leave(queue, target.count);
  if (!reached(target)) throw Stopped{};
}

void Progress::sleep_until(double time_s) {
  std::unique_lock lock(mu_);
  for (double left_s = time_s - now_s(); left_s > 0; left_s = time_s - now_s()) {
    if (stopped()) throw Stopped{};
    notified_.wait_for(lock, std::chrono::duration<double>(left_s));
  }
}

void Progress::start_clock() {
  last_publish_s_.store(now_s());
  clock_runs_.store(true);
}

void Progress::give_up(const Target& target, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  fail(std::make_exception_ptr(
      Error(ErrorCode::kDeadline,
            fmt::format("run: no progress for {:.0f} s: the lane {} does not finish its work (does "
                        "a drive or a rank hang? see dmesg, and the other ranks' errors)",
                        deadline_s_, plan::name_of(target.lane)))));
  lock.lock();
}

void Progress::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mu_);
    if (!failure_) failure_ = std::move(error);
  }
  stop();
}

void Progress::stop() {
  stopped_.store(true);
  notify();
}

std::exception_ptr Progress::failure() const {
  const std::lock_guard lock(mu_);
  return failure_;
}

}  // namespace strata::exec

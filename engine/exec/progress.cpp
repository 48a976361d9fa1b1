// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/progress.h"

#include <fmt/format.h>

#include <chrono>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace strata::exec {

Progress::Progress(double deadline_s) : deadline_s_(deadline_s), last_publish_s_(now_s()) {}

void Progress::publish(plan::Lane lane) {
  counts_[static_cast<size_t>(lane)].fetch_add(1);
  last_publish_s_.store(now_s(), std::memory_order_relaxed);
  if (sleepers_.load() > 0) {
    const std::lock_guard lock(mu_);
    changed_.notify_all();
  }
  wake_elsewhere();
}

void Progress::wake_elsewhere() {
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    if (elsewhere_[lane].load() && wakes_[lane]) wakes_[lane]();
  }
}

void Progress::notify() {
  {
    const std::lock_guard lock(mu_);
    last_publish_s_.store(now_s(), std::memory_order_relaxed);
    changed_.notify_all();
  }
  wake_elsewhere();
}

void Progress::set_wake(plan::Lane lane, std::function<void()> wake) {
  wakes_[static_cast<size_t>(lane)] = std::move(wake);
}

void Progress::wait(plan::Lane lane, int64_t count) {
  if (reached(lane, count)) return;
  std::unique_lock lock(mu_);
  sleepers_.fetch_add(1);
  while (!reached(lane, count)) {
    if (stopped()) break;
    if (now_s() - last_publish_s_.load(std::memory_order_relaxed) > deadline_s_) {
      lock.unlock();
      fail(std::make_exception_ptr(Error(
          ErrorCode::kDeadline,
          fmt::format("run: no op finished for {:.0f} s while waiting for op {} of the {} lane "
                      "(is a drive or a rank hanging?)",
                      deadline_s_, count, static_cast<int>(lane)))));
      lock.lock();
      break;
    }
    sleep(lock);
  }
  sleepers_.fetch_sub(1);
  if (!reached(lane, count)) throw Stopped{};
}

// The timeout is only for the deadline; a publish wakes at once.
void Progress::sleep(std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, std::chrono::seconds(1));
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

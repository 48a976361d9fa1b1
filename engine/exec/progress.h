// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

#include "engine/plan/op.h"

namespace strata::exec {

// How far every lane is, and whether the run has failed. A lane is a counter of published ops over
// the whole life of the executor; a wait is (lane, count).
//
// Threads: all. Publishing takes no lock while nobody sleeps.
// Failure: the first failure wins; every sleeper wakes and throws Stopped.
class Progress {
 public:
  // Thrown out of waits once the run has failed or stops; never leaves the executor.
  struct Stopped {};

  explicit Progress(double deadline_s);

  int64_t published(plan::Lane lane) const { return counts_[static_cast<size_t>(lane)].load(); }
  bool reached(plan::Lane lane, int64_t count) const { return published(lane) >= count; }
  void publish(plan::Lane lane);

  // Sleeps until `lane` has published `count` ops. Throws Stopped; fails the run when nothing at
  // all was published for the deadline.
  void wait(plan::Lane lane, int64_t count);

  // Sleeps until `ready` is true; it is looked at again after every publish and notify.
  template <typename Ready>
  void wait_until(const Ready& ready) {
    std::unique_lock lock(mu_);
    sleepers_.fetch_add(1);
    while (!ready()) {
      if (stopped()) {
        sleepers_.fetch_sub(1);
        throw Stopped{};
      }
      sleep(lock);
    }
    sleepers_.fetch_sub(1);
  }

  // Wakes every sleeper, and calls the hook of every lane that registered one.
  void notify();

  // Called after a publish while `flag` of the lane is set: how lanes that sleep elsewhere are
  // woken.
  void set_wake(plan::Lane lane, std::function<void()> wake);
  std::atomic<bool>& asleep_elsewhere(plan::Lane lane) {
    return elsewhere_[static_cast<size_t>(lane)];
  }

  void fail(std::exception_ptr error);
  void stop();
  bool stopped() const { return stopped_.load(); }
  std::exception_ptr failure() const;

 private:
  void sleep(std::unique_lock<std::mutex>& lock);
  void wake_elsewhere();

  const double deadline_s_;
  std::array<std::atomic<int64_t>, plan::kLaneCount> counts_ = {};
  std::array<std::atomic<bool>, plan::kLaneCount> elsewhere_ = {};
  std::array<std::function<void()>, plan::kLaneCount> wakes_;  // Constant once lanes run
  std::atomic<int> sleepers_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<double> last_publish_s_ = 0;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::exception_ptr failure_;  // Guarded by mu_
};

}  // namespace strata::exec

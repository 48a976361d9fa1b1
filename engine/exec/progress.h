// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/plan/op.h"

namespace strata::exec {

// The stage of an op: issued to its queue, or completed. Only lanes whose ops run on a device
// publish kIssued.
enum class Stage : uint8_t { kCompleted, kIssued };
inline constexpr int kStageCount = 2;

// The progress of every lane, and whether the run has failed. A lane has one counter of ops for
// each stage, over the whole life of the executor; a wait is (lane, count, stage).
//
// Threads: any. Publishing takes no lock and wakes no thread unless a sleeper's target is reached.
// Failure: the first failure wins; every sleeper wakes and throws Stopped.
class Progress {
 public:
  // Thrown out of waits once the run has failed or stops; never leaves the executor.
  struct Stopped {};

  explicit Progress(double deadline_s);

  // Reached when `count` ops of `lane` are at `stage`.
  struct Target {
    plan::Lane lane;
    int64_t count;
    Stage stage = Stage::kCompleted;
  };

  int64_t published(plan::Lane lane, Stage stage = Stage::kCompleted) const {
    return counts_[index_of(lane, stage)].load();
  }
  bool reached(const Target& target) const {
    return published(target.lane, target.stage) >= target.count;
  }
  void publish(plan::Lane lane, Stage stage = Stage::kCompleted);

  // Sleeps until the target is reached. Throws Stopped. With a deadline, fails the run when that
  // long no lane has published anything and none has done arithmetic; time in which the process was
  // stopped does not count.
  enum class TimeLimit : uint8_t { kDeadline, kNone };
  void wait(const Target& target, TimeLimit limit = TimeLimit::kDeadline);

  // For a lane that does arithmetic in its own thread, which may take any time but cannot hang.
  class Arithmetic {
   public:
    explicit Arithmetic(Progress& progress) : progress_(progress) { ++progress_.arithmetic_; }
    ~Arithmetic() {
      progress_.last_publish_s_.store(now_s(), std::memory_order_relaxed);
      --progress_.arithmetic_;
    }
    Arithmetic(const Arithmetic&) = delete;
    Arithmetic& operator=(const Arithmetic&) = delete;

   private:
    Progress& progress_;
  };
  bool does_arithmetic() const { return arithmetic_.load() > 0; }

  // When the caller computes, lanes may wait for it as long as it likes: the deadline counts only
  // between these calls, while the caller waits for the lanes. Otherwise it always counts.
  void start_clock();
  void stop_clock() { clock_runs_.store(false); }

  // Sleeps until `ready` is true; it is evaluated again after every notify, not after a publish.
  // Calls `look` about once a second meanwhile.
  template <typename Ready, typename Look>
  void wait_until(const Ready& ready, const Look& look) {
    std::unique_lock lock(mu_);
    while (!ready()) {
      if (stopped()) throw Stopped{};
      notified_.wait_for(lock, kLongestSleep);
      lock.unlock();
      look();
      lock.lock();
    }
  }
  template <typename Ready>
  void wait_until(const Ready& ready) {
    wait_until(ready, [] {});
  }

  // Sleeps until that time of now_s(). Throws Stopped.
  void sleep_until(double time_s);

  // Wakes every sleeper, and calls the hook of every lane that sleeps elsewhere.
  void notify();

  // For a lane that sleeps elsewhere: `wake` is called when the lane's target is reached (never, if
  // it has none) and at every notify. The lane must check whether it can continue after
  // begin_sleep() and before it sleeps.
  void set_wake(plan::Lane lane, std::function<void()> wake);
  void begin_sleep(plan::Lane lane, const std::optional<Target>& target);
  void end_sleep(plan::Lane lane);

  void fail(std::exception_ptr error);
  void stop();
  bool stopped() const { return stopped_.load(); }
  std::exception_ptr failure() const;

 private:
  static constexpr size_t kCounters = static_cast<size_t>(kStageCount * plan::kLaneCount);
  static constexpr size_t index_of(plan::Lane lane, Stage stage) {
    return static_cast<size_t>(stage) * plan::kLaneCount + static_cast<size_t>(lane);
  }
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // So that a deadline is noticed.
  static constexpr std::chrono::seconds kLongestSleep{1};

  // The sleepers that wait for one counter.
  struct Queue {
    std::atomic<int64_t> least = kNever;  // the least of their targets
    std::vector<int64_t> targets;         // Guarded by mu_
    std::condition_variable reached;
  };
  struct Elsewhere {
    std::function<void()> wake;  // Constant once lanes run
    std::atomic<bool> asleep = false;
    std::atomic<size_t> counter = 0;  // the target
    std::atomic<int64_t> count = kNever;
  };
  void join(Queue& queue, int64_t count);
  void leave(Queue& queue, int64_t count);
  void give_up(const Target& target, std::unique_lock<std::mutex>& lock);

  const double deadline_s_;
  std::array<std::atomic<int64_t>, kCounters> counts_ = {};
  std::array<Queue, kCounters> queues_;
  std::array<Elsewhere, plan::kLaneCount> elsewhere_;
  std::atomic<bool> stopped_ = false;
  std::atomic<double> last_publish_s_ = 0;
  std::atomic<bool> clock_runs_ = true;
  std::atomic<int> arithmetic_ = 0;  // lanes that do some now
  mutable std::mutex mu_;
  std::condition_variable notified_;
  std::exception_ptr failure_;  // Guarded by mu_
};

}  // namespace strata::exec

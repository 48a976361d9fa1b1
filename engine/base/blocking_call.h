// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/environment.h"
#include "engine/base/running_clock.h"

namespace strata {

// Watches a call that may never return, of a file whose drive hangs or whose file server is gone,
// or of a GPU. While the object lives, a thread of the environment (environment.h) watches the
// call. It warns after 30 s and reports a hang after `hang_after_s`, because a thread that waits in
// the kernel can be neither stopped nor abandoned. Without an environment the object does nothing.
//
// Threads: any number. Cost: one lock. Failure: the first object of an environment throws Error
// (kIo) when no thread can be started. `path` must outlive the object.
class BlockingCall {
 public:
  // `what`, such as "read", is a literal.
  BlockingCall(const char* what, const std::string& path);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

  // The longest that a call may take in the calling thread's environment.
  static double deadline_s();

 private:
  friend class BlockingCalls;
  const char* what_;
  const std::string& path_;
  BlockingCalls* const calls_;  // null: not watched
  double begin_s_ = 0;          // by BlockingCalls' clock
  bool warned_ = false;
  bool reported_ = false;
  BlockingCall* previous_ = nullptr;  // Guarded by the lock of BlockingCalls
  BlockingCall* next_ = nullptr;      // Guarded by the lock of BlockingCalls
};

// The running calls of an environment, oldest first, and the thread that watches them.
class BlockingCalls {
 public:
  explicit BlockingCalls(const Sinks& sinks);
  ~BlockingCalls();

  void add(BlockingCall& call);
  void remove(BlockingCall& call);

 private:
  void watch();
  double sleep_s() const;
  void look_at(BlockingCall& call);

  const Sinks& sinks_;
  std::mutex mu_;
  std::condition_variable stopped_;
  BlockingCall* first_ = nullptr;  // Guarded by mu_
  BlockingCall* last_ = nullptr;   // Guarded by mu_
  bool stopping_ = false;          // Guarded by mu_
  RunningClock clock_;             // Guarded by mu_: a pause of this process is no drive's
  std::jthread thread_;            // last: it uses the others
};

}  // namespace strata

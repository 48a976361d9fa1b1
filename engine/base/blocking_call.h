// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/environment.h"

namespace strata {

// A system call on a file that may never return: its drive hangs, or the server that it is on is
// gone. While the object lives, a thread of the environment (environment.h) watches the call: it
// warns after 30 s, and reports a hang when `hang_after_s` have passed, since a thread that waits
// in the kernel can be neither stopped nor left behind. Outside of an environment it does nothing.
//
// Threads: any number. Cost: a lock. Failure: the first one of an environment throws Error (kIo)
// where no thread can be started. `path` must outlive it.
class BlockingCall {
 public:
  // `what`, such as "read", is a literal.
  BlockingCall(const char* what, const std::string& path);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

  // The longest that one may take in the calling thread's environment.
  static double deadline_s();

 private:
  friend class BlockingCalls;
  const char* what_;
  const std::string& path_;
  BlockingCalls* const calls_;  // null: not watched
  double begin_s_ = 0;
  bool warned_ = false;
  bool reported_ = false;
  BlockingCall* previous_ = nullptr;  // Guarded by the lock of BlockingCalls
  BlockingCall* next_ = nullptr;      // Guarded by it too
};

// All calls of an environment that are under way, oldest first, and the thread that looks at them.
class BlockingCalls {
 public:
  explicit BlockingCalls(const Sinks& sinks);
  ~BlockingCalls();

  void add(BlockingCall& call);
  void remove(BlockingCall& call);

 private:
  void watch();
  void look_at(BlockingCall& call);

  const Sinks& sinks_;
  std::mutex mu_;
  std::condition_variable stopped_;
  BlockingCall* first_ = nullptr;  // Guarded by mu_
  BlockingCall* last_ = nullptr;   // Guarded by mu_
  bool stopping_ = false;          // Guarded by mu_
  std::jthread thread_;            // last: it uses the others
};

}  // namespace strata

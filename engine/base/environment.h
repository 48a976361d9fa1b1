// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace strata {

// Callbacks through which the engine reports to its caller. Threads of the engine call them,
// several at a time; they must not throw and must not call the engine.
struct Sinks {
  // Receives one line without its line end; names in it may hold any bytes (see printable()). Null:
  // lines are dropped.
  std::function<void(LogLevel, std::string_view)> log = nullptr;
  // Called when a drive or a GPU does not answer and holds a thread or memory that cannot be freed:
  // the process has to end, and this callback may end it. When it returns, or is null, the wait
  // goes on.
  std::function<void(const Error&)> hang = nullptr;
  double hang_after_s = 600;  // the longest that a system call on a file may take; above 0
  // When not null and true, a ring that closes waits for its drive only for a moment, not until the
  // deadline. A signal handler may set it.
  const std::atomic<bool>* close_now = nullptr;
};

class BlockingCalls;

// The sinks that code of the engine reports to. Environments share nothing: several may be in use
// at once, each by its own threads.
//
// A thread uses the environment of its innermost Scope; a thread that it starts with start_thread()
// uses the same one. Without an environment, log lines are dropped and system calls are not
// watched. A Scope hands the sinks to functions far below that log or open files, so that the
// functions between need no parameter for them.
//
// Threads: any number. An environment must outlive its scopes and everything made or started within
// them. It owns one thread from the first BlockingCall on.
class Environment {
 public:
  explicit Environment(Sinks sinks);  // throws Error (kConfig) when a time is not above 0
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  class Scope {
   public:
    explicit Scope(Environment* environment);  // may be null
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Environment* const outer_;
  };

  static Environment* current();  // of the calling thread; may be null

  const Sinks& sinks() const { return sinks_; }
  bool closes_now() const { return sinks_.close_now != nullptr && sinks_.close_now->load(); }
  // The running calls. Throws Error (kIo) when no thread can be started.
  BlockingCalls& blocking_calls();

 private:
  // Constant after construction
  const Sinks sinks_;

  std::mutex mu_;
  std::unique_ptr<BlockingCalls> calls_;  // Guarded by mu_ until it is made
};

// Passes the error to the `hang` sink of the calling thread's environment.
void report_hang(const Error& error);

}  // namespace strata

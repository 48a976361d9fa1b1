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

// What a caller gives, so that it hears what the engine says. They are called on threads of the
// engine, several at a time; they must not throw, and must not call the engine.
struct Sinks {
  // One line, without its end; names in it may hold any bytes (see printable()). Null: dropped.
  std::function<void(LogLevel, std::string_view)> log = nullptr;
  // A drive does not answer, and a thread or memory is lost to it: the process has to end, and this
  // is where it may. Where it returns, or is null, the wait goes on.
  std::function<void(const Error&)> hang = nullptr;
  double hang_after_s = 600;  // the longest that a system call on a file may take; above 0
  // When set and true: a ring that closes waits for its drive for a moment only, not until the
  // deadline. Safe to set in a signal handler.
  const std::atomic<bool>* hurry = nullptr;
};

class BlockingCalls;

// What code of the engine works within: the sinks of its caller. Nothing of it is shared by the
// process: several may be in use at once, each by threads of its own.
//
// A thread works within the environment of its innermost Scope, and a thread that it starts
// (start_thread) within the same; without one, log lines are dropped and system calls are not
// watched. A Scope is how functions far below, which open files or log, get the sinks without a
// parameter of each function between.
//
// Threads: any number. It outlives its scopes, and all that was made or started within them.
// Holds a thread of its own from the first BlockingCall on.
class Environment {
 public:
  explicit Environment(Sinks sinks);  // throws Error (kConfig) for times that are not above 0
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
  bool hurries() const { return sinks_.hurry != nullptr && sinks_.hurry->load(); }
  // Those under way. Throws Error (kIo) where no thread can be started.
  BlockingCalls& blocking_calls();

 private:
  // Constant after construction
  const Sinks sinks_;

  std::mutex mu_;
  std::unique_ptr<BlockingCalls> calls_;  // Guarded by mu_ until it is made
};

// Gives it to the sink of the calling thread.
void report_hang(const Error& error);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/float_modes.h"

namespace strata {

// While it lives, threads that this one starts take no signals but those of their own faults.
// Handlers belong to the caller's threads; some products of oneDNN keep data below the stack
// pointer, where a handler on their thread writes.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts a thread that uses the caller's environment and the default modes of floats, and takes no
// signals. Throws Error (kIo) when the system refuses a thread; a caller that has started several
// must then end and join the earlier ones.
template <class Body>
std::jthread start_thread(Body&& body) {
  const SignalsBlocked blocked;
  try {
    return std::jthread(
        [environment = Environment::current(), body = std::forward<Body>(body)]() mutable {
          const Environment::Scope scope(environment);
          const DefaultFloatModes modes;
          body();
        });
  } catch (const std::system_error& error) {
    throw system_error(ErrorCode::kIo, "cannot start a thread", error.code().value(),
                       "raise the limit of processes: ulimit -u, or pids.max of the cgroup; or of "
                       "address space: ulimit -v");
  }
}

// Runs it on a thread of its own, for arithmetic that a caller's thread would do, and waits.
template <class Body>
auto on_own_thread(Body&& body) -> decltype(body()) {
  decltype(body()) result{};
  std::exception_ptr failure;
  start_thread([&] {
    try {
      result = body();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace strata

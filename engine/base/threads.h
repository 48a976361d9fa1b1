// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/float_modes.h"

namespace strata {

// Starts a thread that uses the caller's environment, and the default modes of floats. Throws Error
// (kIo) when the system refuses a thread; a caller that has started several must then end and join
// the earlier ones.
template <class Body>
std::jthread start_thread(Body&& body) {
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

}  // namespace strata

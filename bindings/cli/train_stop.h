// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "engine/train/trainer.h"

namespace strata::cli {

// The request to stop `strata train`. The first signal sets it and prints on standard error what
// the run is doing; the second ends the process.
struct StopRequest {
  std::atomic<bool> stop = false;
  std::atomic<train::RunPhase> phase = train::RunPhase::kLoad;
};

// Installs the signal handlers (stop_signals.h) and returns the process's only request. `answers`:
// whether a signal is answered on standard error.
StopRequest& handle_stop_signals(bool answers = true);

}  // namespace strata::cli

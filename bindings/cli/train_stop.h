// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "engine/train/trainer.h"

namespace strata::cli {

// The request to stop `strata train`. The first signal sets it, and is answered at once on standard
// error with what the run is doing; the second ends the process.
struct StopRequest {
  std::atomic<bool> stop = false;
  std::atomic<train::RunPhase> phase = train::RunPhase::kLoad;
};

// The process's one request, with its signals (stop_signals.h) handled from now on.
StopRequest& handle_stop_signals();

}  // namespace strata::cli

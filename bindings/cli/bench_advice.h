// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/machine.h"

namespace strata::cli {

// A training run, and the drives for it.
struct AdviceQuestion {
  std::string model = {};        // a directory with config.json, or the file; needs no weights
  int64_t tokens = 0;            // in a step
  int64_t sequence_length = 0;   // at most; less if the model's positions or `tokens` are fewer
  int64_t host_memory = 0;       // budget; 0: most of what the machine has
  config::Machine machine = {};  // with figures of all drives together
  int drives = 1;
  int64_t free_bytes = 0;                   // on the drives
  const std::atomic<bool>* stop = nullptr;  // set by a signal: advise() throws kInterrupted
};

struct Advice {
  std::string model;
  double parameters = 0;
  int64_t tokens = 0;  // in a step: whole sequences
  int64_t sequence_length = 0;
  int64_t host_memory = 0;
  int64_t scratch_bytes = 0;  // 0: all state fits in memory
  int64_t free_bytes = 0;
  double step_s = 0;       // with these drives
  double hidden_s = 0;     // with infinitely fast drives
  std::string bottleneck;  // of the step with these drives
  double read_bytes = 0;   // from drives, in a step
  double write_bytes = 0;
  int drives = 1;
  int drives_enough = 1;  // the fewest drives that hide the transfers; 0: more than kMostDrives

  bool has_space() const { return free_bytes >= scratch_bytes; }
  bool enough() const { return drives_enough > 0 && drives_enough <= drives && has_space(); }
};

// How much longer than with infinitely fast drives a step may take when the transfers count as
// hidden. Hiding the last percent would need many times as many drives.
inline constexpr double kHiddenTolerance = 0.1;
inline constexpr int kMostDrives = 1024;

struct DriveSearch {
  int first = 1;        // the count that is tested first
  double hidden_s = 0;  // a step with infinitely fast drives
  double limit_s = 0;
};

// The fewest drives with which a step takes at most `limit_s`; 0 when kMostDrives are not enough.
// More drives must never make a step longer. Calls `step_s` rarely, because each call makes a plan,
// which takes seconds.
int fewest_drives(const std::function<double(int drives)>& step_s, const DriveSearch& search);

// Throws Error: kConfig for a model whose config.json cannot be read, kUsage for more sequences
// than can be planned. Needs `model`, `tokens` and `sequence_length`.
void check_question(const AdviceQuestion& question);

// Plans and simulates the run with these drives, with infinitely fast ones and with more of them.
// Throws Error: kConfig for a model that cannot be read, kDoesNotFit when the run needs more
// memory.
Advice advise(const AdviceQuestion& question);

std::string advice_text(const Advice& advice);
std::string advice_json(const Advice& advice);

}  // namespace strata::cli

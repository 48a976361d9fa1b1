// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/cli/launcher.h"

namespace strata::cli {

// Whether ranks ended by what would come again, or was meant: mistakes in options, data or budgets
// (exit codes 2 and 3), a second Ctrl-C, and SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU.
bool is_final(const RanksEnd& end);

// How a start of a job failed.
struct StartFailure {
  RanksEnd end = {};
  std::string host = {};  // of the rank
  int64_t step = 0;       // from which the next start goes on
  std::string text = {};  // empty: of `end`
};

// Whether a job is started again after a failure.
struct RestartAnswer {
  bool again = false;
  std::string line = {};  // for the user; empty: the rank that failed has said all
};

// The rule for one job, with at most `restarts_max` starts after the first. A job is not started
// again when its failure is final, nor for an error that comes twice from the same step: it would
// come a third time. Pure but for the count.
class RestartRule {
 public:
  explicit RestartRule(int64_t restarts_max) : restarts_max_(restarts_max) {}

  // `ranks`: those of the next start.
  RestartAnswer answer(const StartFailure& failure, int64_t ranks);

 private:
  const int64_t restarts_max_;
  int64_t restarts_ = 0;
  std::optional<StartFailure> before_;
};

}  // namespace strata::cli

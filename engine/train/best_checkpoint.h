// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"

namespace strata::train {

// The held-out losses of a run, in their order: which is the least, and how long ago that was.
struct HeldOutLosses {
  int64_t best_step = 0;  // 0: no loss that is finite yet
  double best_loss = INFINITY;
  int64_t since_best = 0;  // evaluations after it
  int64_t last_step = 0;   // of the last evaluation; 0: none yet

  // Whether it is the least so far. A loss that is not finite is not.
  bool add(int64_t step, double loss);
};

// The evaluations in metrics.jsonl up to a step, in their order; none when there is no file.
struct HeldOutLoss {
  int64_t step = 0;
  double loss = 0;
};
std::vector<HeldOutLoss> read_held_out_losses(const std::string& metrics, int64_t last_step);

// Whether a stop has prevented the evaluation of a run's last step, from whose checkpoint the run
// is resumed; `is_own`: it is in the directory of --out.
bool lacks_evaluation(const config::Options& options, int64_t steps, int64_t resumed_step,
                      bool is_own);

// RUN/best names the checkpoint with the least held-out loss of those evaluated while --keep-best
// was on; rotation leaves that checkpoint alone. The count of evaluations for --patience goes on in
// a resumed run, because metrics.jsonl has them.
//
// Rank 0 has one. Threads: one. Failure: Error.
class BestCheckpoint {
 public:
  struct Options {
    bool keeps = false;
    int64_t patience = 0;  // evaluations without a lower loss that end the run; 0: no limit
  };
  // `run`: its directory.
  BestCheckpoint(const std::string& run, const Options& options) : run_(run), options_(options) {}

  // Takes up the run after a step, from its metrics.jsonl and its checkpoints. A crash may have
  // come between an evaluation and the link, which is set then.
  void begin(int64_t last_step);
  // Adds an evaluation. True when the state of that step is the best to be kept.
  bool add(int64_t step, double loss);
  // RUN/best names the checkpoint of that step from now on.
  void keep(int64_t step);
  bool out_of_patience() const;

  const HeldOutLosses& losses() const { return losses_; }
  // Of the checkpoint that is kept; NaN where metrics.jsonl has lost its loss, so that no other one
  // is known to be better.
  std::optional<int64_t> kept_step() const { return kept_step_; }
  double kept_loss() const { return kept_loss_; }

 private:
  // Constant after construction
  const std::string run_;
  const Options options_;

  HeldOutLosses losses_;
  std::optional<int64_t> kept_step_;
  double kept_loss_ = INFINITY;
};

// The link of a run.
std::string best_link(const std::string& run);

// Throws Error (kConfig) where something else has its name.
void require_place_for_best(const std::string& run);

}  // namespace strata::train

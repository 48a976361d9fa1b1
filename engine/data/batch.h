// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/data/token_source.h"

namespace strata::data {

struct BatchOptions {
  int64_t rows = 1;        // B: samples of a micro-batch
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t replicas = 1;    // data-parallel ranks that take different rows
  bool shuffle = true;
  uint64_t seed = 0;
  // What follows the last sample: the next epoch (true), or rows of padding whose targets are all
  // -1 (false), for evaluation, which uses each sample once.
  bool repeat = true;
};

// Assigns samples to the rows of micro-batches. Rows are numbered ((step*accumulate +
// micro_batch)*replicas + replica)*B + row, with steps counted from 0. Row r gets item r of the
// concatenated epochs; each epoch has every sample once, in its own order when shuffled, or the
// draws of a mixture (TokenSource).
//
// Stateless: the step determines the position in the data, so a resumed run gets the same rows.
// Threads: any number.
class Batches {
 public:
  Batches(const TokenSource& source, const BatchOptions& options);

  // Writes one micro-batch of [B, T] ids and targets, and where the document of each token starts
  // in its row, if `starts` is not null.
  void fill(int64_t step, int64_t micro_batch, int64_t replica, int32_t* tokens, int32_t* targets,
            int32_t* starts = nullptr) const;

  // The number of targets that are not -1 in all micro-batches of all replicas of a step, by which
  // the step's loss is divided. 0 when every target is masked.
  int64_t target_count(int64_t step) const;
  // How many of the first `steps` steps have a target and therefore update weights.
  int64_t updates_in(int64_t steps) const;

  int64_t rows_per_step() const { return options_.accumulate * options_.replicas * options_.rows; }
  // The number of steps in which every sample occurs at least once.
  int64_t steps_per_epoch() const;
  // The sample of a row number; -1 for padding.
  int64_t sample_of(int64_t row) const;

 private:
  TokenSource source_;
  BatchOptions options_;
};

}  // namespace strata::data

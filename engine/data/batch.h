// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/data/data.h"

namespace strata::data {

struct BatchOptions {
  int64_t rows = 1;        // B: samples of a micro-batch
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t replicas = 1;    // data-parallel ranks that take different rows
  bool shuffle = true;
  uint64_t seed = 0;
  // Behind the last sample: the next epoch, or rows of padding whose targets are all -1. Padding is
  // for evaluation, which looks at each sample once.
  bool repeat = true;
};

// Which sample each row of each micro-batch is. A step's rows are numbered
// ((step*accumulate + micro_batch)*replicas + replica)*B + row, with the step counted from 0; row r
// takes item r of the concatenated epochs, each of which holds every sample once, in an order of
// its own when shuffled.
//
// Stateless: the position in the data is the step, so a resumed run sees the same rows. Threads:
// any number.
class Batches {
 public:
  Batches(const TokenSource& source, const BatchOptions& options);

  // Writes one micro-batch of [B, T] ids and targets.
  void fill(int64_t step, int64_t micro_batch, int64_t replica, int32_t* tokens,
            int32_t* targets) const;

  // Targets that are not -1 in all micro-batches of all replicas in that step: what the mean loss
  // of the step is divided by. May be 0 when all is masked.
  int64_t target_count(int64_t step) const;
  // How many of the first `steps` steps have a target: those that update anything.
  int64_t updates_in(int64_t steps) const;

  int64_t rows_per_step() const { return options_.accumulate * options_.replicas * options_.rows; }
  // Steps that see every sample at least once.
  int64_t steps_per_epoch() const;
  // The sample of a row number; -1 for padding.
  int64_t sample_of(int64_t row) const;

 private:
  TokenSource source_;
  BatchOptions options_;
};

}  // namespace strata::data

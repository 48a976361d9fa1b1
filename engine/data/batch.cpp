// SPDX-License-Identifier: Apache-2.0
#include "engine/data/batch.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::data {

Batches::Batches(const TokenSource& source, const BatchOptions& options)
    : source_(source), options_(options) {
  STRATA_CHECK(source.sample_count() > 0);
  STRATA_CHECK(options.rows > 0 && options.accumulate > 0 && options.replicas > 0);
}

int64_t Batches::steps_per_epoch() const {
  return ceil_div(source_.sample_count(), rows_per_step());
}

int64_t Batches::sample_of(int64_t row) const {
  const int64_t count = source_.sample_count();
  const int64_t epoch = row / count;
  if (epoch > 0 && !options_.repeat) return -1;
  if (!options_.shuffle) return row % count;
  return source_.drawn(options_.seed, row);
}

void Batches::fill(int64_t step, int64_t micro_batch, int64_t replica, int32_t* tokens,
                   int32_t* targets, int32_t* starts) const {
  STRATA_CHECK(step >= 0 && micro_batch >= 0 && micro_batch < options_.accumulate);
  STRATA_CHECK(replica >= 0 && replica < options_.replicas);
  const int64_t length = source_.length();
  const int64_t first =
      ((step * options_.accumulate + micro_batch) * options_.replicas + replica) * options_.rows;
  for (int64_t row = 0; row < options_.rows; ++row) {
    int32_t* row_tokens = tokens + row * length;
    int32_t* row_targets = targets + row * length;
    int32_t* row_starts = starts == nullptr ? nullptr : starts + row * length;
    const int64_t sample = sample_of(first + row);
    if (sample >= 0) {
      source_.sample(sample, row_tokens, row_targets, row_starts);
    } else {
      std::fill_n(row_tokens, length, 0);
      std::fill_n(row_targets, length, -1);
      if (row_starts != nullptr) std::fill_n(row_starts, length, 0);
    }
  }
}

int64_t Batches::target_count(int64_t step) const {
  const int64_t rows = rows_per_step();
  if (options_.repeat && !source_.has_masks()) return rows * source_.length();
  int64_t targets = 0;
  for (int64_t row = step * rows; row < (step + 1) * rows; ++row) {
    const int64_t sample = sample_of(row);
    if (sample >= 0) targets += source_.target_count(sample);
  }
  return targets;
}

int64_t Batches::updates_in(int64_t steps) const {
  if (!source_.has_masks()) return steps;
  const int64_t rows = rows_per_step();
  int64_t updates = 0;
  for (int64_t step = 0; step < steps; ++step) {
    int64_t row = step * rows;
    const int64_t end = row + rows;
    while (row < end && source_.target_count(sample_of(row)) == 0) ++row;
    updates += row < end ? 1 : 0;
  }
  return updates;
}

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/data_tokens.h"

namespace strata::data {

// Whole records in rows of T tokens, for attention by document.
//
// Row r holds the records order[row_starts[r]] .. order[row_starts[r + 1] - 1], one after another.
struct Packing {
  std::vector<int64_t> order;
  std::vector<int64_t> row_starts;  // one more than there are rows
  int64_t bytes() const {
    return static_cast<int64_t>((order.capacity() + row_starts.capacity()) * sizeof(int64_t));
  }
  int64_t row_count() const { return static_cast<int64_t>(row_starts.size()) - 1; }
};

// Packs records of these numbers of inputs, each from 1 to `row_length`, into few rows: the longest
// record that is left goes to the fullest row that has room for it, and of rows that are equally
// full to the one that was begun first. A pure function of the lengths: the rows are in the order
// of their first record's number, and a row's records in the order of their numbers. Time
// n log(row_length), memory about 40 bytes a record.
Packing pack_records(std::span<const int64_t> lengths, int64_t row_length);

// The number of inputs of each record: all of its tokens but the last, at most `row_length`.
// `starts` are where records begin in `tokens`.
std::vector<int64_t> record_lengths(const TokenSequence& tokens, std::span<const int64_t> starts,
                                    int64_t row_length);

}  // namespace strata::data

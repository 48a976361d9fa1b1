// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "engine/data/long_array.h"

namespace strata::data {

// Whole records in rows of T tokens, for attention by document.
//
// Row r holds the records order[row_starts[r]] .. order[row_starts[r + 1] - 1], one after another.
struct Packing {
  Numbers order;
  Numbers row_starts;  // one more than there are rows
  int64_t bytes() const { return order.bytes() + row_starts.bytes(); }
  int64_t row_count() const { return row_starts.size() - 1; }
};

// The numbers of inputs of records, one after another: all tokens of each but the last, at most
// `row_length`. Records begin at `starts` in a sequence of `token_count` tokens.
class RecordLengths {
 public:
  RecordLengths(const Numbers& starts, int64_t token_count, int64_t row_length, int64_t first = 0)
      : starts_(starts, first),
        token_count_(token_count),
        row_length_(row_length),
        start_(starts_.next()) {}

  std::optional<int64_t> next();  // nullopt after the last record

 private:
  NumberReader starts_;
  const int64_t token_count_;
  const int64_t row_length_;
  std::optional<int64_t> start_;
};

// Packs records into few rows: the longest record that is left goes to the fullest row that has
// room for it, and of rows that are equally full to the one that was begun first. A pure function
// of the records' lengths: the rows are in the order of their first record's number, and a row's
// records in the order of their numbers.
//
// `packing` is empty; its arrays may be in files. Memory beside them: 40 bytes for each of `window`
// records, a bit for each row, and some 200 bytes for each length that records have. Reads the
// starts about once for each `window` records, whose number has no effect on the rows.
void pack_records(const Numbers& starts, int64_t token_count, int64_t row_length, Packing& packing,
                  int64_t window = int64_t{1} << 19);

// The largest window that is used, or that so much memory has room for; no fewer than 2^12.
int64_t packing_window(int64_t room_bytes);

}  // namespace strata::data

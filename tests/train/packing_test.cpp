// SPDX-License-Identifier: Apache-2.0
// Packed rows hold whole records, each once, with few tokens of padding, in an order that only
// their lengths decide.
#include "engine/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/base/rng.h"
#include "engine/data/token_source.h"

namespace strata::data {
namespace {

using Ids = std::vector<int32_t>;
using Lengths = std::vector<int64_t>;

Lengths all_of(const Numbers& numbers) {
  return numbers.read(0, numbers.size());
}

// The starts of records with these numbers of inputs, and the end of the last one.
Numbers starts_of(const Lengths& lengths, int64_t& end) {
  Numbers starts;
  end = 0;
  for (const int64_t length : lengths) {
    starts.push_back(end);
    end += length + 1;
  }
  return starts;
}

Packing pack(const Lengths& lengths, int64_t row_length) {
  int64_t end = 0;
  const Numbers starts = starts_of(lengths, end);
  Packing packing;
  pack_records(starts, end, row_length, packing);
  return packing;
}

// What pack_records() says it does, one record at a time.
Lengths rows_one_by_one(const Lengths& lengths, int64_t row_length) {
  Lengths longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  const auto length_of = [&](int64_t record) { return lengths[static_cast<size_t>(record)]; };
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](int64_t a, int64_t b) { return length_of(a) > length_of(b); });
  Lengths rooms, rows(lengths.size());
  for (const int64_t record : longest_first) {
    size_t best = rooms.size();
    for (size_t row = 0; row < rooms.size(); ++row) {
      if (rooms[row] < length_of(record)) continue;
      if (best == rooms.size() || rooms[row] < rooms[best]) best = row;
    }
    if (best == rooms.size()) rooms.push_back(row_length);
    rooms[best] -= length_of(record);
    rows[static_cast<size_t>(record)] = static_cast<int64_t>(best);
  }
  return rows;
}

// The records of each row, rows in the order of their first records.
std::vector<Lengths> grouped(const Lengths& rows) {
  std::vector<Lengths> groups;
  Lengths number(rows.size(), -1);
  for (size_t record = 0; record < rows.size(); ++record) {
    int64_t& at = number[static_cast<size_t>(rows[record])];
    if (at < 0) {
      at = static_cast<int64_t>(groups.size());
      groups.emplace_back();
    }
    groups[static_cast<size_t>(at)].push_back(static_cast<int64_t>(record));
  }
  return groups;
}

std::vector<Lengths> rows_of(const Packing& packing) {
  std::vector<Lengths> rows;
  for (int64_t row = 0; row < packing.row_count(); ++row) {
    const Lengths ends = packing.row_starts.read(row, 2);
    rows.push_back(packing.order.read(ends[0], ends[1] - ends[0]));
  }
  return rows;
}

TEST(Packing, TheFullestRowWithRoomIsTaken) {
  const Packing packing = pack(Lengths{3, 6, 4, 1, 2, 8}, 8);
  // 8 | 6 2 | 4 3 1, numbered by their first records 0, 1 and 5.
  EXPECT_EQ(all_of(packing.order), (Lengths{0, 2, 3, 1, 4, 5}));
  EXPECT_EQ(all_of(packing.row_starts), (Lengths{0, 3, 5, 6}));
  EXPECT_EQ(pack(Lengths{}, 8).row_count(), 0);
}

// Lengths are drawn in three ways: any, few different ones, and mostly short ones.
TEST(Packing, RowsAreThoseOfOneRecordAfterAnother) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Philox random(seed);
    const auto draw = [&](uint64_t k, uint64_t below) {
      return static_cast<int64_t>(random.u64(k, 0) % below);
    };
    const int64_t row_length = 1 + draw(0, 60);
    const auto most = static_cast<uint64_t>(row_length);
    Lengths lengths(static_cast<size_t>(draw(1, 400)));
    for (uint64_t k = 0; k < lengths.size(); ++k) {
      int64_t length = 1 + draw(2 + k, most);
      if (seed % 3 == 1) length = std::min(row_length, length / 7 * 7 + 1);
      if (seed % 3 == 2) length = 1 + length * length / (2 * row_length + 1);
      lengths[k] = length;
    }
    EXPECT_EQ(rows_of(pack(lengths, row_length)), grouped(rows_one_by_one(lengths, row_length)))
        << "seed " << seed;
  }
}

// More records than are put in order at a time.
TEST(Packing, EveryRecordIsInOneRowThatHoldsIt) {
  constexpr int64_t kLength = 200;
  const Philox random(7);
  Lengths lengths;
  for (uint64_t k = 0; k < 1'200'000; ++k) {
    lengths.push_back(1 + static_cast<int64_t>(random.u64(k, 0) % kLength));
  }
  const Packing packing = pack(lengths, kLength);
  std::vector<bool> seen(lengths.size());
  int64_t last_first = -1, wrong = 0;
  for (const Lengths& row : rows_of(packing)) {
    int64_t used = 0;
    for (const int64_t record : row) {
      used += lengths[static_cast<size_t>(record)];
      wrong += seen[static_cast<size_t>(record)];
      seen[static_cast<size_t>(record)] = true;
    }
    wrong += used > kLength || row.front() <= last_first;
    wrong += !std::is_sorted(row.begin(), row.end());
    last_first = row.front();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(packing.order.size(), std::ssize(lengths));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t least = (tokens + kLength - 1) / kLength;
  EXPECT_LE(packing.row_count(), least + least / 100 + 1);  // 1% above what could be enough
}

TEST(Packing, ARowHasItsDocumentsAndTheirStarts) {
  TokenSequence tokens("test", 100);
  tokens.append({1, 2}, false);
  tokens.append({3}, true);
  tokens.append({11, 12, 13, 14, 15}, true);  // cut after 4 + 1
  tokens.append({16, 17}, true);
  tokens.append({21, 22}, true);
  const Numbers starts(Lengths{0, 3, 10});
  RecordLengths lengths(starts, tokens.count(), 4);
  EXPECT_EQ(lengths.next(), 2);
  EXPECT_EQ(lengths.next(), 4);
  EXPECT_EQ(lengths.next(), 1);
  EXPECT_EQ(lengths.next(), std::nullopt);
  Packing packing;
  pack_records(starts, tokens.count(), 4, packing);
  ASSERT_EQ(packing.row_count(), 2);
  const TokenSource source(
      4, {{.tokens = &tokens, .starts = &starts, .count = 2, .packing = &packing}});
  Ids inputs(4), targets(4), documents(4);
  source.sample(0, inputs.data(), targets.data(), documents.data());
  EXPECT_EQ(inputs, (Ids{1, 2, 21, 0}));
  EXPECT_EQ(targets, (Ids{-1, 3, 22, -1}));
  EXPECT_EQ(documents, (Ids{0, 0, 2, 3}));
  EXPECT_EQ(source.target_count(0), 2);
  source.sample(1, inputs.data(), targets.data(), documents.data());
  EXPECT_EQ(inputs, (Ids{11, 12, 13, 14}));
  EXPECT_EQ(targets, (Ids{12, 13, 14, 15}));
  EXPECT_EQ(documents, (Ids{0, 0, 0, 0}));
}

TEST(Packing, TheWindowChangesNoRow) {
  Lengths lengths;
  for (int64_t k = 0; k < 3000; ++k) lengths.push_back(1 + k * k % 61);
  const Packing whole = pack(lengths, 64);
  const auto all = [](const Numbers& numbers) { return numbers.read(0, numbers.size()); };
  int64_t end = 0;
  const Numbers starts = starts_of(lengths, end);
  for (const int64_t window : {1, 7, 100, 2048}) {
    Packing packing;
    pack_records(starts, end, 64, packing, window);
    EXPECT_EQ(all(packing.order), all(whole.order)) << window;
    EXPECT_EQ(all(packing.row_starts), all(whole.row_starts)) << window;
  }
}

TEST(Packing, TheWindowFitsTheMemory) {
  EXPECT_EQ(packing_window(INT64_MAX), 1 << 19);
  EXPECT_EQ(packing_window(20 << 20), 1 << 19);
  EXPECT_EQ(packing_window((20 << 20) - 1), 1 << 18);
  EXPECT_EQ(packing_window(0), 1 << 12);
}

}  // namespace
}  // namespace strata::data

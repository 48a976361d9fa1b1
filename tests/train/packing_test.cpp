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

TEST(Packing, TheFullestRowWithRoomIsTaken) {
  const Packing packing = pack_records(Lengths{3, 6, 4, 1, 2, 8}, 8);
  // 8 | 6 2 | 4 3 1, numbered by their first records 0, 1 and 5.
  EXPECT_EQ(packing.order, (Lengths{0, 2, 3, 1, 4, 5}));
  EXPECT_EQ(packing.row_starts, (Lengths{0, 3, 5, 6}));
  EXPECT_EQ(pack_records(Lengths{}, 8).row_count(), 0);
}

TEST(Packing, EveryRecordIsInOneRowThatHoldsIt) {
  constexpr int64_t kLength = 200;
  const Philox random(7);
  Lengths lengths;
  for (uint64_t k = 0; k < 5000; ++k) {
    lengths.push_back(1 + static_cast<int64_t>(random.u64(k, 0) % kLength));
  }
  const Packing packing = pack_records(lengths, kLength);
  Lengths sorted = packing.order;
  std::sort(sorted.begin(), sorted.end());
  Lengths all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  for (int64_t row = 0; row < packing.row_count(); ++row) {
    int64_t used = 0;
    for (int64_t k = packing.row_starts[static_cast<size_t>(row)];
         k < packing.row_starts[static_cast<size_t>(row) + 1]; ++k) {
      used += lengths[static_cast<size_t>(packing.order[static_cast<size_t>(k)])];
    }
    EXPECT_LE(used, kLength);
  }
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
  const Lengths starts = {0, 3, 10};
  const Lengths lengths = record_lengths(tokens, starts, 4);
  EXPECT_EQ(lengths, (Lengths{2, 4, 1}));
  const Packing packing = pack_records(lengths, 4);
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

}  // namespace
}  // namespace strata::data

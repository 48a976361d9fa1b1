// SPDX-License-Identifier: Apache-2.0
// Rows are the samples that their number names: in order, over replicas, over epochs, padded at the
// end.
#include "engine/data/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace strata::data {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kLength = 4;

// Tokens 0, 1, 2, ...: sample k starts with 4k.
TokenSequence counting(int64_t samples) {
  TokenSequence tokens("test", 1000);
  Ids ids(static_cast<size_t>(samples * kLength + 1));
  std::iota(ids.begin(), ids.end(), 0);
  tokens.append(ids, true);
  return tokens;
}

// First tokens of the rows of one micro-batch, divided by T: their samples.
Ids samples_of(const Batches& batches, int64_t rows, int64_t step, int64_t micro_batch,
               int64_t replica) {
  Ids tokens(static_cast<size_t>(rows * kLength));
  Ids targets(tokens.size());
  batches.fill(step, micro_batch, replica, tokens.data(), targets.data());
  Ids samples;
  for (int64_t row = 0; row < rows; ++row) {
    samples.push_back(tokens[static_cast<size_t>(row * kLength)] / static_cast<int32_t>(kLength));
  }
  return samples;
}

TEST(Batches, InputsAndTargetsAreOneApart) {
  const TokenSequence tokens = counting(3);
  const Batches batches(TokenSource(tokens, kLength, 0, 3), {.rows = 2, .shuffle = false});
  Ids inputs(8);
  Ids targets(8);
  batches.fill(0, 0, 0, inputs.data(), targets.data());
  EXPECT_EQ(inputs, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(targets, (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Batches, WithoutShuffleTheOrderIsStepMicroBatchReplicaRow) {
  const TokenSequence tokens = counting(20);
  const Batches batches(TokenSource(tokens, kLength, 0, 20),
                        {.rows = 2, .accumulate = 2, .replicas = 2, .shuffle = false});
  EXPECT_EQ(samples_of(batches, 2, 0, 0, 0), (Ids{0, 1}));
  EXPECT_EQ(samples_of(batches, 2, 0, 0, 1), (Ids{2, 3}));
  EXPECT_EQ(samples_of(batches, 2, 0, 1, 0), (Ids{4, 5}));
  EXPECT_EQ(samples_of(batches, 2, 1, 1, 1), (Ids{14, 15}));
  EXPECT_EQ(batches.rows_per_step(), 8);
  EXPECT_EQ(batches.steps_per_epoch(), 3);
  EXPECT_EQ(batches.target_count(0), 32);
}

TEST(Batches, RanksTogetherSeeWhatOneRankSees) {
  const TokenSequence tokens = counting(50);
  const TokenSource source(tokens, kLength, 0, 50);
  const Batches one(source, {.rows = 4, .accumulate = 2, .seed = 3});
  const Batches two(source, {.rows = 2, .accumulate = 2, .replicas = 2, .seed = 3});
  for (int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    Ids both = samples_of(two, 2, 5, micro_batch, 0);
    const Ids second = samples_of(two, 2, 5, micro_batch, 1);
    both.insert(both.end(), second.begin(), second.end());
    EXPECT_EQ(both, samples_of(one, 4, 5, micro_batch, 0));
  }
}

TEST(Batches, EachEpochHoldsEverySampleOnceInANewOrder) {
  const TokenSequence tokens = counting(12);
  const Batches batches(TokenSource(tokens, kLength, 0, 12), {.rows = 5, .seed = 1});
  Ids epochs[2];
  for (int64_t row = 0; row < 24; ++row) {
    epochs[row / 12].push_back(static_cast<int32_t>(batches.sample_of(row)));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (Ids& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    Ids all(12);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(epoch, all);
  }
}

TEST(Batches, EvaluationSeesEachSampleOnceAndPadsTheRest) {
  const TokenSequence tokens = counting(3);
  const Batches batches(TokenSource(tokens, kLength, 1, 2),
                        {.rows = 3, .shuffle = false, .repeat = false});
  Ids inputs(12);
  Ids targets(12);
  batches.fill(0, 0, 0, inputs.data(), targets.data());
  EXPECT_EQ(inputs, (Ids{4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (Ids{5, 6, 7, 8, 9, 10, 11, 12, -1, -1, -1, -1}));
  EXPECT_EQ(batches.target_count(0), 8);
  EXPECT_EQ(batches.steps_per_epoch(), 1);
}

TEST(Batches, MaskedTokensAreNoTargets) {
  TokenSequence tokens("test", 100);
  tokens.append({1, 2, 3}, false);
  tokens.append({4, 5, 6}, true);
  tokens.append({7, 8, 9}, false);
  const Batches batches(TokenSource(tokens, kLength, 0, 2), {.rows = 2, .shuffle = false});
  Ids inputs(8);
  Ids targets(8);
  batches.fill(0, 0, 0, inputs.data(), targets.data());
  EXPECT_EQ(inputs, (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(targets, (Ids{-1, -1, 4, 5, 6, -1, -1, -1}));
  EXPECT_EQ(batches.target_count(0), 3);
}

}  // namespace
}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
// Sampled tokens follow the distribution that temperature, top-k and top-p leave, and are a
// function of the seed.
#include "engine/train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"

namespace strata::train {
namespace {

// Probabilities 0.1, 0.4, 0.2, 0.3 at temperature 1.
const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
constexpr int kDraws = 20000;

std::vector<double> frequencies(const SamplingOptions& options) {
  TokenSampler sampler(options);
  std::vector<double> counts(4, 0);
  for (int position = 0; position < kDraws; ++position) {
    counts[static_cast<size_t>(sampler.next(kLogits.data(), 4, 0, position))] += 1.0 / kDraws;
  }
  return counts;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (wanted[k] == 0)
      EXPECT_EQ(found[k], 0) << k;
    else
      EXPECT_NEAR(found[k], wanted[k], 0.015) << k;  // 4 standard deviations
  }
}

TEST(TokenSampler, DrawsFromTheSoftmax) {
  expect_near(frequencies({}), {0.1, 0.4, 0.2, 0.3});
}

TEST(TokenSampler, TemperatureSharpens) {
  expect_near(frequencies({.temperature = 0.5}), {1.0 / 30, 16.0 / 30, 4.0 / 30, 9.0 / 30});
}

TEST(TokenSampler, TopKKeepsTheMostLikely) {
  expect_near(frequencies({.top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
}

TEST(TokenSampler, TopPKeepsTheFewestThatReachIt) {
  expect_near(frequencies({.top_p = 0.65}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(frequencies({.top_p = 0.75}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_near(frequencies({.top_p = 1e-9}), {0, 1, 0, 0});
}

TEST(TokenSampler, TemperatureZeroIsTheFirstOfTheLargest) {
  TokenSampler sampler({.temperature = 0});
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(sampler.next(logits.data(), 4, 0, 0), 1);
}

TEST(TokenSampler, TokensDependOnSeedSequenceAndPositionAlone) {
  TokenSampler one({.seed = 5});
  TokenSampler two({.seed = 5});
  TokenSampler other({.seed = 6});
  std::vector<int32_t> forward;
  std::vector<int32_t> backward(50);
  std::vector<int32_t> others;
  std::vector<int32_t> sequence;
  for (int k = 0; k < 50; ++k) forward.push_back(one.next(kLogits.data(), 4, 0, k));
  for (int k = 49; k >= 0; --k)
    backward[static_cast<size_t>(k)] = two.next(kLogits.data(), 4, 0, k);
  for (int k = 0; k < 50; ++k) others.push_back(other.next(kLogits.data(), 4, 0, k));
  for (int k = 0; k < 50; ++k) sequence.push_back(one.next(kLogits.data(), 4, 1, k));
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward, others);
  EXPECT_NE(forward, sequence);
}

TEST(TokenSampler, BadNumbersAreErrors) {
  TokenSampler sampler({});
  const std::vector<float> broken = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(sampler.next(broken.data(), 2, 0, 0), Error);
  const std::vector<float> none(3, -std::numeric_limits<float>::infinity());
  EXPECT_THROW(sampler.next(none.data(), 3, 0, 0), Error);
  EXPECT_THROW(TokenSampler({.temperature = -1}), Error);
  EXPECT_THROW(TokenSampler({.top_p = 0}), Error);
  EXPECT_THROW(TokenSampler({.top_k = -1}), Error);
}

}  // namespace
}  // namespace strata::train

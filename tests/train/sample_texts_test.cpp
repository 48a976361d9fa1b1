// SPDX-License-Identifier: Apache-2.0
// Texts of samples take the most likely token of their own row and end where they must, in batches
// of any size.
#include "engine/train/sample_texts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata::train {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kVocabulary = 50;

// A model whose most likely next token is one more than the last, up to 40.
void answer(exec::Instance& pass, const model::BatchShape& shape) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t last = row * shape.length + pass.logit_position[static_cast<size_t>(row)];
    const int32_t next = std::min(pass.tokens[static_cast<size_t>(last)] + 1, 40);
    for (int64_t id = 0; id < kVocabulary; ++id) {
      pass.logits[static_cast<size_t>(row * kVocabulary + id)] =
          id == next ? 2.0f : -static_cast<float>(id);
    }
  }
}

struct Sampled {
  std::vector<Ids> texts;
  int passes = 0;
};

Sampled sampled(const SamplePrompts& prompts, const model::BatchShape& shape) {
  SampleTexts texts(prompts, shape, kVocabulary);
  exec::Instance pass;
  Sampled result;
  for (; texts.prepare(pass); ++result.passes) {
    answer(pass, shape);
    texts.take(pass);
  }
  result.texts = texts.new_ids();
  return result;
}

TEST(SampleTexts, EndAtEndTokensAtTheMostTokensAndAtTheSequence) {
  const SamplePrompts prompts = {
      .prompts = {{1}, {30, 20}, {7}, {1, 2, 3, 4, 5, 6, 10}, {9, 9, 9, 9, 9, 9, 9, 9}},
      .end_ids = {8, 23},
      .tokens_max = 4};
  const std::vector<Ids> expected = {{2, 3, 4, 5}, {21, 22}, {}, {11}, {}};
  for (const int64_t rows : {1, 2, 3, 8}) {
    EXPECT_EQ(sampled(prompts, {.rows = rows, .length = 8}).texts, expected) << rows << " rows";
  }
  EXPECT_EQ(sampled(prompts, {.rows = 1, .length = 8}).passes, 9);
  EXPECT_EQ(sampled(prompts, {.rows = 8, .length = 8}).passes, 4) << "as many as the longest";
  EXPECT_EQ(sampled({}, {.rows = 2, .length = 8}).passes, 0);
}

TEST(SampleTexts, APassHasEachTextInARowOfItsOwn) {
  const SamplePrompts prompts = {.prompts = {{5, 6}, {7}}, .end_ids = {}, .tokens_max = 2};
  const model::BatchShape shape = {.rows = 3, .length = 4, .documents = true};
  SampleTexts texts(prompts, shape, kVocabulary);
  exec::Instance pass;
  pass.tokens = {99};  // of an earlier pass
  ASSERT_TRUE(texts.prepare(pass));
  Ids tokens = {5, 6, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0};
  tokens.resize(24);  // each row is one document that starts at 0
  EXPECT_EQ(pass.tokens, tokens);
  EXPECT_EQ(pass.logit_position, Ids({1, 0, 0}));
  EXPECT_EQ(pass.logits.size(), 150u);
  answer(pass, shape);
  texts.take(pass);
  ASSERT_TRUE(texts.prepare(pass));
  tokens[2] = 7;
  tokens[5] = 8;
  EXPECT_EQ(pass.tokens, tokens);
  EXPECT_EQ(pass.logit_position, Ids({2, 1, 0}));
}

TEST(SampleTexts, LogitsThatAreNoNumbersEndATextAndNotTheRun) {
  const SamplePrompts prompts = {.prompts = {{5}, {6}}, .end_ids = {}, .tokens_max = 3};
  const model::BatchShape shape = {.rows = 2, .length = 8};
  SampleTexts texts(prompts, shape, kVocabulary);
  exec::Instance pass;
  for (int passes = 0; texts.prepare(pass); ++passes) {
    answer(pass, shape);
    if (passes == 1) pass.logits.assign(pass.logits.size(), NAN);
    texts.take(pass);
    ASSERT_LT(passes, 2);
  }
  EXPECT_EQ(texts.new_ids(), (std::vector<Ids>{{6}, {7}}));
}

}  // namespace
}  // namespace strata::train

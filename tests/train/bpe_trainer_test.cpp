// SPDX-License-Identifier: Apache-2.0
// The trainer merges the most frequent pairs, breaks ties as it says, and writes files that the
// reader loads.
#include "engine/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace strata::text {
namespace {

std::vector<std::string> learned(const BpeVocabulary& vocabulary) {
  return {vocabulary.tokens.begin() + 256, vocabulary.tokens.end()};
}

BpeVocabulary trained_on(std::string_view text, int64_t size) {
  BpeTrainer trainer({.vocabulary_size = size, .special_tokens = {"<e>"}});
  trainer.add_text(text);
  return trainer.train();
}

const char* const kProse =
    "the cat sat on the mat. The dog sat on the log; the frog's in the bog.\nLow lower lowest, new "
    "newer "
    "newest, wide wider widest.\n";

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  // "low" 5 times, "lower" 2, "newest" 6, "widest" 3, each its own word: es 9, est 9, lo 7, low 7,
  // ...
  std::string text;
  const auto add = [&](const char* word, int count) {
    for (int k = 0; k < count; ++k) text += std::string(word) + "\n";
  };
  add("low", 5);
  add("lower", 2);
  add("newest", 6);
  add("widest", 3);
  EXPECT_EQ(learned(trained_on(text, 257 + 4)),
            (std::vector<std::string>{"es", "est", "lo", "low"}));
}

TEST(BpeTrainer, TiesGoToTheSmallerIds) {
  EXPECT_EQ(learned(trained_on("cd\nab\nad\ncd\nab\nad\n", 257 + 3)),
            (std::vector<std::string>{"ab", "ad", "cd"}));
}

TEST(BpeTrainer, RepeatedCharactersAreCountedAgainAfterAMerge) {
  EXPECT_EQ(learned(trained_on("aaaaaaaa\naaaaaaaa\n", 257 + 3)),
            (std::vector<std::string>{"aa", "aaaa", "aaaaaaaa"}));
}

TEST(BpeTrainer, OrderOfTextsDoesNotMatter) {
  BpeTrainer forward({.vocabulary_size = 300});
  BpeTrainer backward({.vocabulary_size = 300});
  forward.add_text(kProse);
  forward.add_text("another text with other words\n");
  backward.add_text("another text with other words\n");
  backward.add_text(kProse);
  EXPECT_EQ(forward.train().merges, backward.train().merges);
}

TEST(BpeTrainer, StopsWhenPairsAreTooRare) {
  const BpeVocabulary vocabulary = trained_on("ab\nab\nxyz\n", 1000);
  EXPECT_EQ(learned(vocabulary), (std::vector<std::string>{"ab"}));
  EXPECT_EQ(vocabulary.size(), 258);
}

TEST(BpeTrainer, SizesThatCannotBeAreRefused) {
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 256}), Error);
  EXPECT_THROW(BpeTrainer({.vocabulary_size = 1 << 30}), Error);
  BpeTrainer trainer({.vocabulary_size = 257});
  EXPECT_THROW(trainer.add_text("\xff"), Error);
}

TEST(BpeTrainer, WritesWhatTheReaderLoads) {
  const test::TemporaryDirectory folder;
  const int64_t size = train_tokenizer(
      "prose", [](const auto& take) { take(kProse); }, {.vocabulary_size = 270}, folder.path());
  EXPECT_EQ(size, 270);
  const Tokenizer tokenizer = Tokenizer::read(folder.path());
  EXPECT_EQ(tokenizer.vocabulary_size(), 270);
  EXPECT_EQ(tokenizer.eos_id(), 269);
  EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), 269);
  const std::string text =
      "the newest cat, \x01\xC3\xA9 \xF0\x9F\x91\x8D  \r\n\t42000<|endoftext|>";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(ids.back(), 269);
  EXPECT_LT(ids.size(), text.size() - 12);
}

TEST(BpeTrainer, TextWithoutPairsIsAnError) {
  const test::TemporaryDirectory folder;
  EXPECT_THROW(train_tokenizer(
                   "none", [](const auto&) {}, {}, folder.path()),
               Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "tokenizer.json"));
}

}  // namespace
}  // namespace strata::text

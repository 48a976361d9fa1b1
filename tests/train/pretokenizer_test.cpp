// SPDX-License-Identifier: Apache-2.0
// A pattern cuts a text in each of the five ways, and prefixes are put where they belong.
#include "engine/text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::text {
namespace {

using Strings = std::vector<std::string>;

class Collect final : public PieceSink {
 public:
  void piece(std::string_view text) override { pieces.emplace_back(text); }
  Strings pieces;
};

Strings pieces_of(const std::vector<PreTokenizeStep>& steps, std::string_view text,
                  PieceContext context = {true, false}) {
  Collect collect;
  pre_tokenize(steps, text, context, collect);
  return collect.pieces;
}

std::vector<PreTokenizeStep> split_on(std::string dash, SplitBehavior behavior,
                                      bool invert = false) {
  std::vector<PreTokenizeStep> steps;
  steps.emplace_back(SplitStep{TextPattern::literal(std::move(dash)), behavior, invert});
  return steps;
}

std::vector<PreTokenizeStep> metaspace(PrependScheme scheme) {
  std::vector<PreTokenizeStep> steps;
  steps.emplace_back(MetaspaceStep{TextPattern::literal("▁"), "▁", scheme, true});
  return steps;
}

TEST(PreTokenize, SplitsInFiveWays) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(pieces_of(split_on("-", SplitBehavior::kRemoved), text),
            (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(pieces_of(split_on("-", SplitBehavior::kIsolated), text),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(pieces_of(split_on("-", SplitBehavior::kMergedWithPrevious), text),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(pieces_of(split_on("-", SplitBehavior::kMergedWithNext), text),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(pieces_of(split_on("-", SplitBehavior::kContiguous), text),
            (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(PreTokenize, InvertMakesTheRestTheDelimiter) {
  EXPECT_EQ(pieces_of(split_on("ab", SplitBehavior::kRemoved, true), "xxabyab"),
            (Strings{"ab", "ab"}));
}

TEST(PreTokenize, GptPatternKeepsOneSpaceWithItsWord) {
  std::vector<PreTokenizeStep> steps;
  steps.emplace_back(SplitStep{TextPattern::regex(kGpt2Pattern), SplitBehavior::kIsolated, false});
  EXPECT_EQ(pieces_of(steps, "It's  12 o'clock!\n\n x"),
            (Strings{"It", "'s", " ", " 12", " o", "'", "clock", "!", "\n\n", " x"}));
}

TEST(PreTokenize, MetaspacePrependsAsItsSchemeSays) {
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kAlways), "a b", {false, false}),
            (Strings{"▁a", "▁b"}));
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kFirst), "a b", {true, false}),
            (Strings{"▁a", "▁b"}));
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kFirst), "a b", {false, false}),
            (Strings{"a", "▁b"}));
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kNever), "a b"), (Strings{"a", "▁b"}));
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kAlways), " a"), (Strings{"▁a"}));
}

TEST(PreTokenize, TextThatContinuesGetsNoPrefix) {
  EXPECT_EQ(pieces_of(metaspace(PrependScheme::kAlways), "a b", {false, true}),
            (Strings{"a", "▁b"}));
  std::vector<PreTokenizeStep> steps;
  steps.emplace_back(PrefixSpaceStep{});
  EXPECT_EQ(pieces_of(steps, "a", {false, true}), (Strings{"a"}));
  EXPECT_EQ(pieces_of(steps, "a", {true, false}), (Strings{" a"}));
}

TEST(ByteAlphabet, SpellsEveryByteAsAnotherPrintableCharacter) {
  const ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(alphabet.byte_of(alphabet.character_of(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(alphabet.spell(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(alphabet.byte_of(' '), -1);
}

}  // namespace
}  // namespace strata::text

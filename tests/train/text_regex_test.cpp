// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizer files mean here what they mean in their own engine, or are refused by name.
#include "engine/text/text_regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata::text {
namespace {

std::vector<std::string> all_matches(const TextPattern& pattern, std::string_view text) {
  std::vector<std::string> found;
  TextMatches matches(pattern, text);
  TextSpan match;
  while (matches.next(&match))
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  return found;
}

using Strings = std::vector<std::string>;

TEST(TextPattern, WhiteSpaceIsTheUnicodeProperty) {
  const TextPattern space = TextPattern::regex(R"(\s)");
  EXPECT_EQ(all_matches(space, "a\u00a0b\u3000c\u0085"), (Strings{"\u00a0", "\u3000", "\u0085"}));
  EXPECT_EQ(all_matches(space, "\u180e\u200b\ufeff\x1c"), Strings{});
  EXPECT_EQ(all_matches(TextPattern::regex(R"([^\s\p{L}]+)"), "ab \u180e1 x"),
            (Strings{"\u180e1"}));
  EXPECT_EQ(all_matches(TextPattern::regex(R"(\S+)"), " a\u180eb\tc"), (Strings{"a\u180eb", "c"}));
}

TEST(TextPattern, LettersAndDigitsAreThoseOfUnicode) {
  EXPECT_EQ(all_matches(TextPattern::regex(R"(\p{L}+|\p{N}+)"), "abcдж٣½語"),
            (Strings{"abcдж", "٣½", "語"}));
  EXPECT_EQ(all_matches(TextPattern::regex(R"(\d)"), "1٣½"), (Strings{"1", "٣"}));
}

TEST(TextPattern, CaretAndDollarAreLineAnchors) {
  EXPECT_EQ(all_matches(TextPattern::regex("^a|b$"), "ab\nab"), (Strings{"a", "b", "a", "b"}));
}

TEST(TextPattern, FourDigitEscapesAreCodePoints) {
  EXPECT_EQ(all_matches(TextPattern::regex(R"([\u0041-\u0043])"), "xABCD"),
            (Strings{"A", "B", "C"}));
}

TEST(TextPattern, EmptyMatchesBehindAMatchAreNotTaken) {
  EXPECT_EQ(all_matches(TextPattern::regex("a*"), "baac"), (Strings{"", "aa", ""}));
}

TEST(TextPattern, LiteralsAreNoPatterns) {
  EXPECT_EQ(all_matches(TextPattern::literal("a."), "aba.a."), (Strings{"a.", "a."}));
}

class RefusedPattern : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusedPattern, IsNamedInTheError) {
  try {
    TextPattern::regex(GetParam());
    FAIL() << "accepted " << GetParam();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("read regular expression"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Constructs, RefusedPattern,
                         ::testing::Values(R"(\w+)", R"(\bx)", R"(\h)", R"([\S])", "[a&&b]",
                                           "[a[b]]", "a{2}+", "(?P<n>a)", "(?(1)a)", "(?R)",
                                           R"(\1(a))", "(", "[", "\\", "(*ACCEPT)", R"(\p)",
                                           R"(\u12)", R"(\p{Nope})", "\xff"));

TEST(TextPattern, EndlessBacktrackingIsAnError) {
  const TextPattern pattern = TextPattern::regex("(?:a|aa)+(?:a|aa)+[xy]");
  EXPECT_THROW(all_matches(pattern, std::string(400, 'a')), Error);
}

TEST(TextPattern, LongRunsMatchAsAWhole) {
  const TextPattern pattern = TextPattern::regex(R"(\s+(?!\S)|\s+|\p{L}+)");
  const std::string text = std::string(1 << 20, ' ') + "x";
  const Strings found = all_matches(pattern, text);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].size(), (1u << 20) - 1);
}

}  // namespace
}  // namespace strata::text

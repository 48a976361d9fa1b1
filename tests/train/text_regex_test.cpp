// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizer files mean here what they mean in their own engine, or are refused by name.
#include "engine/text/text_regex.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/ascii_automaton.h"
#include "engine/text/bpe_trainer.h"
#include "engine/text/pretokenizer.h"

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

// Within an atomic group a pattern is matched by PCRE2 alone; else by a table where all is ASCII.
TEST(TextPattern, TablesMatchWhatPcre2Matches) {
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string suffix = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string o200k = before + upper + "*" + lower + "+" + suffix + "|" + before + upper +
                            "+" + lower + "*" + suffix +
                            R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<std::string> patterns = {kGpt2Pattern,
                                             BpeTrainer::kSplitPattern,
                                             o200k,
                                             R"(a|ab|abc|b+c?)",
                                             R"((?:ab|a)(?:c|bcd)?|x{2,4}|y{2}|z{2,})",
                                             R"((?:a|b|ab)*c|a+|(?=b)b|[^a-c\]]+)",
                                             R"((?i:straße|K)|\x{61}b|.\.|\d+(?!\d)|\n)",
                                             R"(\p{N})",
                                             R"(a??b|a)"};
  const std::vector<std::string> parts = {
      "a",    "b",      "c",      "ab",     "abc",    "d",    "K",     "x",         "xx",  "y",
      "yy",   "z",      " ",      "  ",     "\n",     "\r\n", "\t",    "'s",        "'LL", "'",
      "1",    "23",     "4567",   ".",      "...",    "/",    "]",     "-",         "é",   "ß",
      "日本", "\u00a0", "\u2028", "\u212a", "\u0301", "The",  "quick", "HTTPServer"};
  std::mt19937_64 random(20240726);
  for (const std::string& source : patterns) {
    const TextPattern quick = TextPattern::regex(source);
    const TextPattern slow = TextPattern::regex("(?>" + source + ")");
    for (int k = 0; k < 3000; ++k) {
      std::string text;
      for (uint64_t n = random() % 16; n > 0; --n) text += parts[random() % parts.size()];
      ASSERT_EQ(all_matches(quick, text), all_matches(slow, text)) << source << "\n" << text;
    }
  }
}

AsciiAutomaton::Characters characters_of(std::string_view atom, bool) {
  AsciiAutomaton::Characters characters;
  if (atom.size() == 1) characters[static_cast<size_t>(atom[0])] = true;
  return characters;
}

TEST(AsciiAutomaton, IsMadeOfWhatWordsAreCutBy) {
  for (const char* pattern : {"a", "ab|(?:c|(d))*e", "a{1,3}b+c?", "a(?!b)|a(?=b)b", "(?i:a)"}) {
    EXPECT_TRUE(AsciiAutomaton::make(pattern, characters_of)) << pattern;
  }
  for (const char* pattern :
       {"a+?", "a++", "^a", "a$", "(?<!b)a", "(?>a)", "(a?)*", "a{99}", "(?!ab)c", "(?i)a"}) {
    EXPECT_FALSE(AsciiAutomaton::make(pattern, characters_of)) << pattern;
  }
}

TEST(AsciiAutomaton, LeavesOtherCharactersThanAsciiToOthers) {
  const auto automaton = AsciiAutomaton::make("ab|a(?!c)", characters_of);
  constexpr size_t kNone = std::string_view::npos;
  EXPECT_EQ(automaton->match_end("ab", 0), 2u);
  EXPECT_EQ(automaton->match_end("xab", 1), 3u);
  EXPECT_EQ(automaton->match_end("a", 0), 1u);
  EXPECT_EQ(automaton->match_end("ac", 0), kNone);
  EXPECT_EQ(automaton->match_end("aé", 0), kNone);
  EXPECT_EQ(automaton->match_end("x", 0), kNone);
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

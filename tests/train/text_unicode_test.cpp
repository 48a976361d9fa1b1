// SPDX-License-Identifier: Apache-2.0
// UTF-8 is checked to the byte and broken text is repaired as decoders of the web do it.
#include "engine/text/text_unicode.h"

#include <gtest/gtest.h>

namespace strata::text {
namespace {

constexpr size_t kValid = std::string_view::npos;

TEST(Unicode, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("plain text of some length, é語👍"), kValid);
  EXPECT_EQ(find_invalid_utf8("\xF4\x8F\xBF\xBF"), kValid);  // U+10FFFF
  EXPECT_EQ(find_invalid_utf8("abc\xFF"), 3u);
  EXPECT_EQ(find_invalid_utf8("12345678\xC3"), 8u);      // cut off
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);
}

TEST(Unicode, ReplacesEachMaximalBrokenPart) {
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x91z"), "a\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8\xC3\xA9"), "\uFFFDé");
}

TEST(Unicode, NormalFormsComposeAcrossAsciiRuns) {
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, "plain e\u0301nd e\u0301"), "plain \u00e9nd \u00e9");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, "x\u00e9y"), "xe\u0301y");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfkc, "\ufb01\uff21\u2460"), "fiA1");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, "e\u0301"), "\u00e9");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, ""), "");
}

// The marks U+1DF7 and U+0D3B, the sign U+11938 and the square U+32FF came after Unicode 9, so that
// marks before and behind them are ordered apart.
TEST(Unicode, NormalFormsAreThoseOfUnicode9) {
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, "a\u0302\u0334"), "a\u0334\u0302");
  for (const char* newer :
       {"a\u1df7\u0334", "a\u0d3b\u0334", "\U00011935\U00011930", "\U00011938"}) {
    EXPECT_EQ(to_unicode_form(UnicodeForm::kNfc, newer), newer);
    EXPECT_EQ(to_unicode_form(UnicodeForm::kNfkd, newer), newer);
  }
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfkc, "\u32ff\u32fe"), "\u32ff\u30f2");
  EXPECT_EQ(to_unicode_form(UnicodeForm::kNfd, "\u00e9\u1df7\u00e9"), "e\u0301\u1df7e\u0301");
}

TEST(Unicode, LowerCaseMapsEachCodePoint) {
  EXPECT_EQ(to_lower_case("ABC ÀΣЖ"), "abc àσж");
  EXPECT_EQ(to_lower_case("\u0130"), "i\u0307");
}

}  // namespace
}  // namespace strata::text

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

TEST(Unicode, LowerCaseMapsEachCodePoint) {
  EXPECT_EQ(to_lower_case("ABC ÀΣЖ"), "abc àσж");
  EXPECT_EQ(to_lower_case("\u0130"), "i\u0307");
}

}  // namespace
}  // namespace strata::text

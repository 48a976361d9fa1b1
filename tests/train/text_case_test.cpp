// SPDX-License-Identifier: Apache-2.0
// Case mappings are those of Python 3.11 (Unicode 14).
#include "engine/text/text_case.h"

#include <gtest/gtest.h>

namespace strata::text {
namespace {

TEST(TextCase, OneCharacterBecomesSeveral) {
  EXPECT_EQ(to_upper_full("straße ŉ ﬁ "
                          "ΐ ᾳ ᾂ ǆ ÿ"),
            "STRASSE ʼN FI Ϊ́ ΑΙ ἊΙ Ǆ Ÿ");
  EXPECT_EQ(to_title_full("straße ßa ﬁn ŉ ǆabc they"), "Straße Ssa Fin ʼN ǅabc They");
  EXPECT_EQ(to_lower_full("İI ǅ"), "i̇i ǆ");
  EXPECT_EQ(to_title_full("they're"), "They'Re");
}

TEST(TextCase, ASigmaAtTheEndOfAWordIsFinal) {
  EXPECT_EQ(to_lower_full("ΑΣ ΑΣΑ Σ ΑΣ. ΑΣ'Α"), "ας ασα σ ας. ασ'α");
}

TEST(TextCase, OnlyTheFirstCharacterIsCapital) {
  EXPECT_EQ(capitalize("éCOLE DE"), "École de");
  EXPECT_EQ(capitalize("ﬁX"), "Fix");
  EXPECT_EQ(capitalize(""), "");
}

TEST(TextCase, PropertiesAreThoseOfRepr) {
  for (const uint32_t c : {0x20u, 0x41u, 0xE9u, 0x65E5u, 0x1F600u}) EXPECT_TRUE(is_printable(c));
  for (const uint32_t c : {0x0Au, 0x7Fu, 0xA0u, 0xADu, 0x200Bu, 0x2028u, 0xE000u, 0x378u}) {
    EXPECT_FALSE(is_printable(c)) << c;
  }
}

}  // namespace
}  // namespace strata::text

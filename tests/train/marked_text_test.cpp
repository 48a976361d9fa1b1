// SPDX-License-Identifier: Apache-2.0
// Marked ranges of a text change no id, and mark the tokens that have a byte of a range, also where
// a token lies across its border.
#include "engine/text/marked_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace strata::text {
namespace {

struct Marked {
  std::vector<int32_t> ids;
  std::vector<bool> marks;
};

Marked encode(const Tokenizer& tokenizer, const std::string& text,
              const std::vector<ByteRange>& ranges) {
  Marked all;
  encode_marked(tokenizer, text, ranges, {.add_special = false},
                [&](const std::vector<int32_t>& ids, bool are_marked) {
                  all.ids.insert(all.ids.end(), ids.begin(), ids.end());
                  all.marks.insert(all.marks.end(), ids.size(), are_marked);
                });
  return all;
}

std::string folder_of(const std::string& kind) {
  return std::string(STRATA_TEST_DATA) + "/train/tokenizers/" + kind;
}

// Texts whose characters often merge over any place, with tokens of the vocabulary's own between.
std::string random_text(std::mt19937& draw, const std::string& special) {
  const std::vector<std::string> parts = {"\n", "\n\n", " ", "  ", "the", "er",  "ing", "é",
                                          "\t", "a",    "0", "12", ".",   "...", "日",  special};
  std::string text;
  for (int k = 0; k < 12; ++k) text += parts[draw() % parts.size()];
  return text;
}

class MarkedText : public ::testing::TestWithParam<const char*> {};

// Tokens of these kinds stand for bytes of the text one after another, which gives their places.
TEST_P(MarkedText, TokensWithAByteOfARangeAreMarked) {
  const Tokenizer tokenizer = Tokenizer::read(folder_of(GetParam()));
  std::string special = "x";
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const bool is_marker = tokenizer.has(id) && tokenizer.piece_of(id).starts_with("<|");
    if (is_marker && tokenizer.is_special(id)) special = tokenizer.piece_of(id);
  }
  std::mt19937 draw(5);
  int across = 0;
  for (int k = 0; k < 3000; ++k) {
    const std::string text = random_text(draw, special);
    size_t begin = draw() % text.size();
    size_t end = begin + 1 + draw() % (text.size() - begin);
    while ((text[begin] & 0xC0) == 0x80) --begin;
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    const Marked marked = encode(tokenizer, text, {{{begin, end}}});
    ASSERT_EQ(marked.ids, tokenizer.encode(text, {.add_special = false})) << text;
    size_t at = 0;
    for (size_t i = 0; i < marked.ids.size(); ++i) {
      const size_t next = at + static_cast<size_t>(tokenizer.bytes_of(marked.ids[i]));
      const bool has_some = at < end && next > begin;
      across += has_some && (at < begin || next > end);
      ASSERT_EQ(marked.marks[i], has_some) << text << " " << begin << " " << end << " token " << i;
      at = next;
    }
    ASSERT_EQ(at, text.size()) << text;
  }
  EXPECT_GT(across, 50);
}

INSTANTIATE_TEST_SUITE_P(OfBytes, MarkedText, ::testing::Values("gpt2", "llama3", "qwen2"),
                         [](const auto& kind) { return std::string(kind.param); });

// Other kinds change white space, so that only their ids and whole ranges are known.
TEST(MarkedText, RangesChangeNoIdOfAnyKind) {
  for (const char* kind : {"llama2", "gemma", "qwen2", "t5"}) {
    const Tokenizer tokenizer = Tokenizer::read(folder_of(kind));
    std::mt19937 draw(6);
    for (int k = 0; k < 300; ++k) {
      const std::string text = random_text(draw, "x");
      const Marked marked = encode(tokenizer, text, {{{0, text.size()}}});
      ASSERT_EQ(marked.ids, tokenizer.encode(text, {.add_special = false})) << kind << text;
      EXPECT_EQ(std::ranges::count(marked.marks, false), 0) << kind << text;
      const Marked none = encode(tokenizer, text, {});
      EXPECT_EQ(std::ranges::count(none.marks, true), 0) << kind << text;
    }
  }
}

// A space is put before the text and one of two is left out, so that only the sums agree.
TEST(MarkedText, TheBytesOfTokensDoNotTellPlacesInATextThatIsChanged) {
  const Marked marked = encode(Tokenizer::read(folder_of("unigram_bytes")), "zq  y", {{{1, 5}}});
  ASSERT_EQ(marked.ids.size(), 5u);  // "▁", "z", "q", "▁", "y"
  EXPECT_EQ(marked.marks, (std::vector<bool>{false, false, true, true, true}));
}

}  // namespace
}  // namespace strata::text

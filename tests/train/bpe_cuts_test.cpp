// SPDX-License-Identifier: Apache-2.0
// A text has the same tokens whether a byte-pair model gets all of it, or the tokenizer cuts it
// where tokens may go over: those of a plain loop that joins the first pair of the lowest rank.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/text_unicode.h"
#include "engine/text/token_model.h"
#include "engine/text/tokenizer.h"
#include "tests/support/seeds.h"

namespace strata::text {
namespace {

using Ids = std::vector<int32_t>;
using Rng = std::mt19937;

const std::vector<std::string> kCharacters = {
    "a", "b", "c", "A", "B", "1", "2",  ".", ",",  "(",
    "▁", " ", "<", "0", "x", ">", "\n", "é", "中", "😀",
};

size_t below(size_t count, Rng& rng) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(rng);
}

bool one_in(size_t count, Rng& rng) {
  return below(count, rng) == 0;
}

std::string byte_token(char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte) & 0xFF);
  return text;
}

// A vocabulary that grows by joining tokens, and what a plain loop makes of texts with it.
class Example {
 public:
  void add_token(const std::string& text) {
    if (!ids_.emplace(text, static_cast<int32_t>(texts_.size())).second) return;
    texts_.push_back(text);
    definition_.vocabulary.emplace_back(text, ids_[text]);
  }

  void add_merge(const std::string& left, const std::string& right, int32_t rank) {
    add_token(left + right);
    auto& rules = std::get<BpeRules>(definition_.rules);
    rules.merges.emplace_back(left, right);
    rules.ranks.push_back(rank);
    merges_[{ids_.at(left), ids_.at(right)}] = {rank, ids_.at(left + right)};
  }

  const std::vector<std::string>& texts() const { return texts_; }
  ModelDefinition& definition() { return definition_; }
  const ModelDefinition& definition() const { return definition_; }

  Tokenizer tokenizer() const {
    TokenizerDefinition definition;
    definition.model = definition_;
    return Tokenizer(std::move(definition), {});
  }

  Ids encode(const std::string& text) const {
    Ids ids = symbols_of(text);
    while (true) {
      auto best = merges_.end();
      size_t place = 0;
      for (size_t k = 0; k + 1 < ids.size(); ++k) {
        const auto found = merges_.find({ids[k], ids[k + 1]});
        if (found == merges_.end()) continue;
        if (best != merges_.end() && found->second.first >= best->second.first) continue;
        best = found;
        place = k;
      }
      if (best == merges_.end()) return ids;
      ids[place] = best->second.second;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
  }

 private:
  Ids symbols_of(const std::string& text) const {
    const bool fuses = std::get<BpeRules>(definition_.rules).fuse_unknown;
    Ids ids;
    bool follows_unknown = false;
    for (size_t at = 0; at < text.size();) {
      const std::string character = text.substr(at, utf8_length(text[at]));
      at += character.size();
      const bool is_known = ids_.contains(character);
      if (is_known) {
        ids.push_back(ids_.at(character));
      } else if (definition_.byte_fallback) {
        for (const char byte : character) ids.push_back(ids_.at(byte_token(byte)));
      } else if (!definition_.unknown_token.empty() && !(fuses && follows_unknown)) {
        ids.push_back(ids_.at(definition_.unknown_token));
      }
      follows_unknown = !is_known;
    }
    return ids;
  }

  ModelDefinition definition_;
  std::map<std::string, int32_t> ids_;
  std::vector<std::string> texts_;
  std::map<std::pair<int32_t, int32_t>, std::pair<int32_t, int32_t>> merges_;
};

Example random_example(Rng& rng) {
  Example example;
  const size_t known = 4 + below(kCharacters.size() - 4, rng);
  for (size_t k = 0; k < known; ++k) example.add_token(kCharacters[below(kCharacters.size(), rng)]);
  const size_t characters = example.texts().size();
  example.definition().byte_fallback = one_in(2, rng);
  if (example.definition().byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      example.add_token(byte_token(static_cast<char>(byte)));
    }
  }
  std::get<BpeRules>(example.definition().rules).fuse_unknown = one_in(2, rng);
  if (!one_in(4, rng)) {
    const std::string unknown = one_in(3, rng) ? "?" : "<unk>";
    example.add_token(unknown);
    example.definition().unknown_token = unknown;
  }
  const size_t others = example.texts().size();
  const bool has_equal_ranks = one_in(3, rng);
  const bool joins_others = one_in(5, rng);  // byte tokens and the unknown token
  const size_t merges = 1 + below(60, rng);
  int32_t rank = 0;
  for (size_t k = 0; k < merges; ++k) {
    const auto part = [&] {
      while (true) {
        const size_t id = below(example.texts().size(), rng);
        if (joins_others || id < characters || id >= others) return example.texts()[id];
      }
    };
    const std::string left = part();
    const std::string right = part();
    if (left.size() + right.size() > 40) continue;
    rank += has_equal_ranks && !one_in(3, rng) ? 0 : 1;
    example.add_merge(left, right, rank);
  }
  return example;
}

std::string random_text(const Example& example, Rng& rng) {
  std::string text;
  const size_t parts = 1 + below(60, rng);
  for (size_t k = 0; k < parts; ++k) {
    const std::string part = one_in(3, rng) ? kCharacters[below(kCharacters.size(), rng)]
                                            : example.texts()[below(example.texts().size(), rng)];
    const size_t times = one_in(8, rng) ? 1 + below(30, rng) : 1;
    for (size_t time = 0; time < times; ++time) text += part;
  }
  return text;
}

// What the cuts of a text are worth.
struct CutCounts {
  size_t sure = 0;
  size_t standing = 0;  // not sure, but no token goes over them
  size_t surely_standing = 0;
  size_t crossed = 0;
};

// Checks each cut against the tokens of the whole text.
void check_cuts(const TokenModel& model, const std::string& text, const Ids& expected,
                CutCounts& counts) {
  TokenModel::Cut cut{0, true};
  while ((cut = model.next_cut(text, cut.offset)).offset < text.size()) {
    SCOPED_TRACE("cut at byte " + std::to_string(cut.offset) + " of " + text);
    Ids ids;
    model.encode(text.substr(0, cut.offset), &ids);
    const size_t seam = ids.size();
    model.encode(text.substr(cut.offset), &ids);
    if (cut.is_sure) {
      ++counts.sure;
      ASSERT_EQ(ids, expected);
      continue;
    }
    const Ids pair = {ids[seam - 1], ids[seam]};
    Ids joined;
    model.encode_pair(pair[0], pair[1], &joined);
    ASSERT_EQ(joined == pair, ids == expected);
    (joined == pair ? counts.standing : counts.crossed) += 1;
    if (!model.surely_stand(pair[0], pair[1])) continue;
    ++counts.surely_standing;
    ASSERT_EQ(joined, pair);
  }
}

TEST(BpeCuts, RandomTextsHaveTheTokensOfTheWhole) {
  CutCounts counts;
  for (uint32_t seed = 0; seed < test::seeds(150); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const Example example = random_example(rng);
    const Tokenizer tokenizer = example.tokenizer();
    const std::unique_ptr<TokenModel> model = make_token_model(example.definition());
    for (int k = 0; k < 10; ++k) {
      const std::string text = random_text(example, rng);
      const Ids expected = example.encode(text);
      Ids whole;
      model->encode(text, &whole);
      ASSERT_EQ(whole, expected) << text;
      for (int pass = 0; pass < 2; ++pass) {  // the second time the cache answers
        ASSERT_EQ(tokenizer.encode(text), expected) << text;
      }
      ASSERT_NO_FATAL_FAILURE(check_cuts(*model, text, expected, counts));
    }
  }
  EXPECT_GT(counts.sure, 20u);
  EXPECT_GT(counts.standing, 20u);
  EXPECT_GT(counts.surely_standing, 20u);
  EXPECT_GT(counts.crossed, 20u);
}

// Encodes a text of one piece; the processor time must be far from growing with its square.
void expect_soon(const Example& example, const std::string& text) {
  const Tokenizer tokenizer = example.tokenizer();
  const std::unique_ptr<TokenModel> model = make_token_model(example.definition());
  Ids whole;
  model->encode(text, &whole);
  const std::clock_t start = std::clock();
  EXPECT_EQ(tokenizer.encode(text), whole);
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 20);
}

std::string repeated(const std::string& unit, size_t count) {
  std::string text;
  for (size_t k = 0; k < count; ++k) text += unit;
  return text;
}

constexpr size_t kLong = 1 << 18;

TEST(BpeCuts, RunsThatJoinWithoutEndTakeLinearTime) {
  Example example;
  for (const char* character : {"a", "1", "▁"}) example.add_token(character);
  int32_t rank = 0;
  for (std::string run = "▁"; run.size() < 3 * kLong; run += run) {
    example.add_merge(run, run, rank++);
  }
  for (std::string run = "a1"; run.size() < kLong; run += run) {
    if (run.size() == 2) example.add_merge("a", "1", rank++);
    example.add_merge(run, run, rank++);
  }
  expect_soon(example, repeated("▁", kLong));
  expect_soon(example, repeated("a1", kLong));
  expect_soon(example, "a" + repeated("▁", kLong + 1) + repeated("1a", kLong));
}

// Each token is one character longer than another, so that each cut within it is crossed.
TEST(BpeCuts, TokensLongerThanPartsAreFoundSoon) {
  Rng rng(7);
  std::string word;
  while (word.size() < 3000) word += "ab1.A"[below(5, rng)];
  Example forward;
  Example backward;
  for (const char* character : {"a", "b", "1", ".", "A"}) {
    forward.add_token(character);
    backward.add_token(character);
  }
  for (size_t k = 1; k < word.size(); ++k) {
    forward.add_merge(word.substr(0, k), word.substr(k, 1), static_cast<int32_t>(k));
    backward.add_merge(word.substr(word.size() - k - 1, 1), word.substr(word.size() - k),
                       static_cast<int32_t>(k));
  }
  const std::string text = repeated(word, 40) + repeated(word.substr(7), 40);
  expect_soon(forward, text);
  expect_soon(backward, text);
}

// Which neighbours join depends on the whole text before them.
TEST(BpeCuts, MergesOfEqualRankGoOnFromTheLeft) {
  Example example;
  for (const char* character : {"a", "1", "."}) example.add_token(character);
  example.add_merge("a", "1", 0);
  example.add_merge("1", "a", 0);
  example.add_merge("1", ".", 0);
  example.add_merge(".", "a", 0);
  expect_soon(example, repeated("a1", kLong));
  expect_soon(example, "1" + repeated("a1", kLong));
  expect_soon(example, "." + repeated("a1.", kLong));
}

}  // namespace
}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
// Ids and texts are exactly those of the `tokenizers` library, for small tokenizers of the common
// kinds and texts that are hard to cut. The references come from
// tests/reference/make_tokenizer_reference.py.
#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::text {
namespace {

using config::Json;

std::string folder_of(const std::string& kind) {
  return std::string(STRATA_TEST_DATA) + "/train/tokenizers/" + kind;
}

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.items()) ids.push_back(static_cast<int32_t>(*id.int64()));
  return ids;
}

class TokenizerParity : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerParity, IdsAndTextsAreThoseOfTheReference) {
  const Tokenizer tokenizer = Tokenizer::read(folder_of(GetParam()));
  const Json cases = Json::read_file(folder_of(GetParam()) + "/cases.json");
  ASSERT_GT(cases.items().size(), 150u);
  for (int pass = 0; pass < 2; ++pass) {  // the second time the word cache answers
    for (const Json& one : cases.items()) {
      const std::vector<int32_t> ids = ids_of(*one.find("ids"));
      if (one.find("text") != nullptr) {
        EXPECT_EQ(tokenizer.encode(one.find("text")->string()), ids) << one.dump();
      }
      EXPECT_EQ(tokenizer.decode(ids), one.find("decoded")->string()) << one.dump();
      EXPECT_EQ(tokenizer.decode(ids, true), one.find("plain")->string()) << one.dump();
    }
  }
}

TEST_P(TokenizerParity, StreamedTextIsTheWholeText) {
  const Tokenizer tokenizer = Tokenizer::read(folder_of(GetParam()));
  const Json cases = Json::read_file(folder_of(GetParam()) + "/cases.json");
  for (const Json& one : cases.items()) {
    if (one.find("text") == nullptr) continue;  // decoders may treat broken sequences as a whole
    StreamDecoder stream(tokenizer, false);
    std::string text;
    for (const int32_t id : ids_of(*one.find("ids"))) text += stream.push(id);
    text += stream.finish();
    EXPECT_EQ(text, one.find("decoded")->string()) << one.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerParity,
                         ::testing::Values("gpt2", "gpt2_prefix", "llama3", "o200k", "qwen2",
                                           "llama2", "metaspace_first", "metaspace_always",
                                           "lowercase", "t5", "unigram_bytes", "bert", "bert_cased",
                                           "gemma"),
                         [](const auto& kind) { return std::string(kind.param); });

// A model may write an id that its tokenizer lacks, below the last one too.
TEST(StreamDecoder, IdsWithoutATextAreLeftOut) {
  TokenizerDefinition definition;
  const Tokenizer gaps = Tokenizer::read(folder_of("gpt2"));
  int32_t hole = 0;
  while (hole < gaps.vocabulary_size() && gaps.has(hole)) ++hole;
  StreamDecoder decoder(gaps);
  EXPECT_EQ(decoder.push(hole) + decoder.push(1 << 30) + decoder.finish(), "");
  EXPECT_FALSE(gaps.has(-1));
}

}  // namespace
}  // namespace strata::text

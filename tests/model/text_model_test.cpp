// SPDX-License-Identifier: Apache-2.0
// Members of the text model are read from text_config where there is one, and a config.json that
// says two things is refused by name.
#include "engine/model/text_model.h"

#include <gtest/gtest.h>

#include "tests/model/base_config.h"

namespace strata::model {
namespace {

TEST(TextModel, TextConfigIsLookedUpFirst) {
  const Architecture a = read(R"({"hidden_size": null, "text_config": {"hidden_size": 96}})");
  EXPECT_EQ(a.hidden, 96);
  EXPECT_EQ(a.vocabulary, 97);
  EXPECT_NE(error_of(R"({"text_config": {"hidden_size": 96}})")
                .find("hidden_size: is 96 in text_config and 48 beside it"),
            std::string::npos);
}

// What is beside text_config is of the whole model: only whether the head is tied counts.
TEST(TextModel, TheTextOfAModelOfMoreHasItsMembersInTextConfig) {
  const std::string start = R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "num_attention_heads": 3, "pad_token_id": 5, "attention_dropout": 0.5, "text_config": {
      "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 3, "head_dim": 10)";
  const Architecture a = read((start + R"(}, "tie_word_embeddings": false})").c_str());
  EXPECT_EQ(a.model_type, "gemma3_text");
  EXPECT_EQ(a.hidden, 64);
  EXPECT_EQ(a.heads, 8);  // those of Transformers where nothing is said
  EXPECT_EQ(a.vocabulary, 262208);
  EXPECT_EQ(a.pad_token, 0);
  EXPECT_FALSE(a.tied);
  const struct {
    std::string rest;
    const char* named;
  } wrong[] = {
      {R"(, "model_type": "llama"}})", "text_config: model_type: is \"llama\""},
      {R"(, "tie_word_embeddings": true}, "tie_word_embeddings": false})", "which one is meant"},
      {R"(, "vocab_size": -1}})", "config.json: text_config: vocab_size: -1"},
      {R"(}, "model_type": "llama"})", "contradicts model_type"},
  };
  for (const auto& [rest, named] : wrong) {
    EXPECT_NE(error_of((start + rest).c_str()).find(named), std::string::npos) << rest;
  }
  EXPECT_NE(error_of(R"({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": 3})")
                .find("text_config: is 3, and must be an object"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::model

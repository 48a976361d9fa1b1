// SPDX-License-Identifier: Apache-2.0
// What generation_config.json and config.json say about generating: their values, odd ones and
// broken ones.
#include "engine/session/generation_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/error.h"
#include "tests/support/log_capture.h"
#include "tests/support/temporary_directory.h"

namespace strata::session {
namespace {

using config::Json;
using Ids = std::vector<int32_t>;

constexpr int64_t kVocabulary = 100;

class GenerationConfigTest : public testing::Test {
 protected:
  GenerationConfigTest() { options_.model = directory_.path(); }

  GenerationConfig read(const std::string& file, const std::string& config = "{}") {
    test::write_text(directory_ / "generation_config.json", file);
    return read_generation_config(options_, Json::parse(config, "config"), kVocabulary);
  }
  std::string refusal(const std::string& file, const std::string& config = "{}") {
    try {
      read(file, config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
    return "accepted";
  }
  // What the file sets, as a user reads it, beside a tokenizer that ends texts with 2.
  std::string applied(const std::string& file) {
    return apply_generation_config(read(file), 2, options_);
  }

  const test::TemporaryDirectory directory_;
  const test::LogCapture log_;
  config::Options options_;
};

TEST_F(GenerationConfigTest, EndTokensAreOneIdOrAList) {
  EXPECT_EQ(read(R"({"eos_token_id": 7})").end_ids, Ids({7}));
  EXPECT_EQ(read(R"({"eos_token_id": [9, 0, 7, 9, 99]})").end_ids, Ids({0, 7, 9, 99}));
  EXPECT_EQ(read(R"({"eos_token_id": [3.0]})").end_ids, Ids({3})) << "as some tools write it";
  EXPECT_EQ(read("{}").end_ids, Ids());
  EXPECT_EQ(log_.text(), "");
  EXPECT_EQ(end_ids_of({.end_ids = {1, 5}}, 3), Ids({1, 3, 5}));
  EXPECT_EQ(end_ids_of({.end_ids = {1, 5}}, 5), Ids({1, 5}));
  EXPECT_EQ(end_ids_of({}, 4), Ids({4}));
  EXPECT_EQ(end_ids_of({.end_ids = {1}}, std::nullopt), Ids({1}));
}

// Training reads no more of the file, so that other mistakes in it do not stop a run.
TEST_F(GenerationConfigTest, EndTokensAreReadWithoutTheRest) {
  const std::string file = R"({"eos_token_id": 7, "top_k": -1, "temperature": "hot"})";
  EXPECT_NE(refusal(file), "accepted");
  const Json config = Json::parse("{}", "config");
  EXPECT_EQ(read_end_ids(directory_.path(), config, kVocabulary, 3), Ids({3, 7}));
  EXPECT_EQ(read_end_ids(directory_.path(), config, kVocabulary, std::nullopt), Ids({7}));
}

TEST_F(GenerationConfigTest, ConfigJsonCountsWhereTheOtherFileNamesNoEndTokens) {
  const std::string config = R"({"eos_token_id": [4, 5]})";
  EXPECT_EQ(read("{}", config).end_ids, Ids({4, 5}));
  EXPECT_EQ(read(R"({"eos_token_id": null})", config).end_ids, Ids({4, 5}));
  EXPECT_EQ(read(R"({"eos_token_id": 8})", config).end_ids, Ids({8}));
  EXPECT_EQ(read(R"({"eos_token_id": []})", config).end_ids, Ids()) << "it names none";
  const std::string nested = R"({"text_config": {"eos_token_id": 6}})";
  EXPECT_EQ(read("{}", nested).end_ids, Ids({6}));
  std::filesystem::remove(directory_ / "generation_config.json");
  EXPECT_EQ(read_generation_config(options_, Json::parse(config, "config"), kVocabulary).end_ids,
            Ids({4, 5}));
}

TEST_F(GenerationConfigTest, EndTokensOutsideOfTheVocabularyEndNoTextAndAreNamed) {
  EXPECT_EQ(read(R"({"eos_token_id": [100, -1, 4, 9223372036854775807]})").end_ids, Ids({4}));
  for (const char* id : {" 100 ", " -1 ", " 9223372036854775807 "}) {
    const std::string said = std::string("eos_token_id") + id + "is not one of the model's 100";
    EXPECT_NE(log_.text().find(said), std::string::npos) << id << "in\n" << log_.text();
  }
}

TEST_F(GenerationConfigTest, BrokenFilesAreRefusedByMember) {
  constexpr std::pair<const char*, const char*> kBroken[] = {
      {R"({"eos_token_id": "2"})", "eos_token_id is the string \"2\", must be the id of a token"},
      {R"({"eos_token_id": [2, [3]]})", "eos_token_id is an array, must be"},
      {R"({"eos_token_id": [null]})", "eos_token_id is null"},
      {R"({"eos_token_id": 1.5})", "eos_token_id is 1.5"},
      {R"({"eos_token_id": 1e300})", "eos_token_id is 1e+300"},
      {R"({"eos_token_id": true})", "eos_token_id is true"},
      {R"({"temperature": -0.5})", "temperature is -0.5, must be a number from 0 to 100"},
      {R"({"temperature": 1e308})", "temperature is 1e+308"},
      {R"({"temperature": "hot"})", "(correct it, or give --temperature)"},
      {R"({"top_p": 0})", "top_p is 0, must be a number above 0 to 1"},
      {R"({"top_p": 1.01})", "top_p is 1.01"},
      {R"({"top_k": -1})", "top_k is -1, must be a whole number from 0"},
      {R"({"top_k": 2.5})", "top_k is 2.5"},
      {R"({"max_new_tokens": 0})",
       "max_new_tokens is 0, must be a whole number from 1 to 16777216"},
      {R"({"max_new_tokens": 99999999999})", "(correct it, or give --max-new-tokens)"},
      {R"({"do_sample": "yes"})",
       "do_sample is the string \"yes\", must be true or false (correct"},
      {"[1]", "it is an array, must be an object"},
      {"<html>", "generation_config.json: line 1, column 1"},
      {"", "generation_config.json"},
  };
  for (const auto& [file, says] : kBroken) {
    const std::string said = refusal(file);
    EXPECT_NE(said.find(says), std::string::npos) << file << ": " << said;
    EXPECT_NE(said.find("generation_config.json"), std::string::npos) << said;
  }
  EXPECT_NE(refusal("{}", R"({"eos_token_id": {}})").find("/config.json: eos_token_id is an"),
            std::string::npos);
}

TEST_F(GenerationConfigTest, TheModelReplacesDefaultsAndSaysSo) {
  EXPECT_EQ(applied(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20,
                        "max_new_tokens": 300, "eos_token_id": [2, 8, 9]})"),
            "generation_config.json sets temperature 0.6, top-k 20, top-p 0.9, max-new-tokens 300; "
            "the model also ends texts with tokens 8, 9");
  EXPECT_EQ(options_.temperature, 0.6);
  EXPECT_EQ(options_.top_k, 20);
  EXPECT_EQ(options_.top_p, 0.9);
  EXPECT_EQ(options_.max_new_tokens, 300);
}

TEST_F(GenerationConfigTest, GivenOptionsWinAndTheirMembersAreNotLookedAt) {
  options_.given = {"temperature", "top-k", "max-new-tokens"};
  options_.temperature = 0.5;
  options_.top_k = 3;
  EXPECT_EQ(applied(R"({"do_sample": false, "temperature": "hot", "top_k": -4, "top_p": 0.7,
                        "max_new_tokens": 0})"),
            "generation_config.json sets top-p 0.7");
  EXPECT_EQ(options_.temperature, 0.5);
  EXPECT_EQ(options_.top_k, 3);
  EXPECT_EQ(options_.max_new_tokens, 64);
}

TEST_F(GenerationConfigTest, AModelThatDoesNotSampleTakesTheMostLikelyToken) {
  EXPECT_EQ(applied(R"({"do_sample": false, "temperature": 0.9, "top_k": 5})"),
            "generation_config.json sets temperature 0");
  EXPECT_EQ(options_.temperature, 0);
  EXPECT_EQ(options_.top_k, 0);
  options_.given = {"top-p"};
  EXPECT_THROW(applied(R"({"do_sample": false})"), Error);
}

TEST_F(GenerationConfigTest, AModelThatSamplesHasTheTemperatureOfTransformers) {
  EXPECT_EQ(applied(R"({"do_sample": true, "top_k": 64, "top_p": 0.95})"),
            "generation_config.json sets temperature 1, top-k 64, top-p 0.95");
  options_ = {};
  options_.model = directory_.path();
  EXPECT_EQ(applied(R"({"bos_token_id": 1, "eos_token_id": 2, "max_length": 4096})"), "");
  EXPECT_EQ(options_.temperature, 0.8) << "nothing is said about sampling";
  EXPECT_EQ(options_.max_new_tokens, 64);
}

TEST_F(GenerationConfigTest, MembersThatWouldChangeTextsAreNamed) {
  EXPECT_EQ(applied(R"({"repetition_penalty": 1.05})"),
            "repetition_penalty of generation_config.json is not used");
  EXPECT_EQ(applied(R"({"num_beams": 4, "suppress_tokens": [1], "guidance_scale": null,
                        "repetition_penalty": 1.0, "min_p": 0, "bad_words_ids": []})"),
            "num_beams, suppress_tokens of generation_config.json are not used");
}

}  // namespace
}  // namespace strata::session

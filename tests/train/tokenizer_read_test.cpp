// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json that is wrong, hostile or beyond what is supported is refused with the member's
// name.
#include "engine/text/tokenizer_read.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "engine/base/error.h"
#include "engine/text/text_files.h"
#include "tests/support/temporary_directory.h"

namespace strata::text {
namespace {

// A small valid file, with one of its parts replaced.
std::string with(const std::string& part, const std::string& replacement) {
  std::string text =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)"
      R"([{"id":3,"content":"<s>","special":true}],)"
      R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
      R"("post_processor":null,)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE",)"
      R"("vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";
  if (part.empty()) return text;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), replacement);
}

Tokenizer make(const std::string& text) {
  return Tokenizer(read_tokenizer_json(text, "t.json"), {});
}

constexpr const char* kModel =
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

struct Refusal {
  const char* part;
  const char* replacement;
  const char* named;  // what the message must hold
};

class TokenizerRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(TokenizerRefusal, NamesTheMember) {
  try {
    make(with(GetParam().part, GetParam().replacement));
    FAIL() << "accepted " << GetParam().replacement;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find(GetParam().named), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, TokenizerRefusal,
    ::testing::Values(
        Refusal{R"("version":"1.0")", R"("version":"2.0")", "version"},
        Refusal{R"("padding":null)", R"("extra":1)", "extra"},
        Refusal{R"("type":"BPE")", R"("type":"WordLevel")", "'WordLevel' is not supported"},
        Refusal{R"("type":"BPE")", R"("type":"Unigram")", "model.merges"},
        Refusal{R"("type":"BPE")", R"("type":"WordPiece")", "model.merges"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":{"a":0}})", "model.vocab"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]})", "vocab[0]"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":[["a","b"]]})", "vocab[0]"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":[["a",null]]})",
                "vocab[0]"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":[["a",1],["a",2]]})",
                "twice"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":1,"vocab":[["a",1]]})", "unk_id"},
        Refusal{kModel, R"("model":{"type":"Unigram","unk_id":0,"vocab":[]})", "model.vocab"},
        Refusal{kModel, R"("model":{"type":"WordPiece","vocab":{"a":0}})", "unk_token"},
        Refusal{kModel,
                R"("model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",)"
                R"("max_input_chars_per_word":100,"vocab":{"a":0}})",
                "unknown token '?'"},
        Refusal{R"("merges":["a b"])", R"("merges":["a b"],"dropout":0.1)", "model.dropout"},
        Refusal{R"("merges":["a b"])", R"("merges":["a b"],"end_of_word_suffix":"</w>")",
                "end_of_word_suffix"},
        Refusal{R"("merges":["a b"])", R"("merges":["a b c"])", "merges[0]"},
        Refusal{R"("merges":["a b"])", R"("merges":[["a"]])", "merges[0]"},
        Refusal{R"("merges":["a b"])", R"("merges":["b a"])", "'ba' is not in the vocabulary"},
        Refusal{R"("merges":["a b"])", R"("merges":{})", "model.merges"},
        Refusal{R"("merges":["a b"])", R"("merges":["a b"],"unk_token":"?")", "unknown token"},
        Refusal{R"("ab":2)", R"("ab":-2)", "vocab['ab']"},
        Refusal{R"("ab":2)", R"("ab":1)", "twice"},
        Refusal{R"("ab":2)", R"("ab":999999999)", "999999999"},
        Refusal{R"("ab":2)", R"("ab":"x")", "vocab['ab']"},
        Refusal{R"({"a":0,"b":1,"ab":2})", R"({})", "model.vocab"},
        Refusal{R"("id":3)", R"("id":2)", "clashes"},
        Refusal{R"("id":3)", R"("id":1e30)", "added_tokens[0].id"},
        Refusal{R"("content":"<s>")", R"("content":7)", "added_tokens[0].content"},
        Refusal{R"("special":true)", R"("specials":true)", "added_tokens[0].specials"},
        Refusal{R"("normalizer":null)", R"("normalizer":{"type":"BertNormalizer","lowercase":3})",
                "normalizer.lowercase"},
        Refusal{R"("normalizer":null)",
                R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"A"})", "too few"},
        Refusal{R"("normalizer":null)",
                R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"////"})", "too few"},
        Refusal{R"("normalizer":null)",
                R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////////w=="})",
                "its table has"},
        Refusal{R"("normalizer":null)",
                R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"a b"})", "base64"},
        Refusal{
            R"("normalizer":null)",
            R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Some"}]})",
            "normalizer.normalizers[1].type"},
        Refusal{R"("normalizer":null)",
                R"("normalizer":{"type":"Replace","pattern":{"Regex":"\\w"},"content":""})", "\\w"},
        Refusal{R"("normalizer":null)", R"("normalizer":[])", "normalizer"},
        Refusal{R"({"type":"ByteLevel","add_prefix_space":false})", R"({"type":"UnicodeScripts"})",
                "'UnicodeScripts' is not supported"},
        Refusal{R"({"type":"ByteLevel","add_prefix_space":false})",
                R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})",
                "after ByteLevel"},
        Refusal{R"({"type":"ByteLevel","add_prefix_space":false})",
                R"({"type":"Split","pattern":{"String":"x"},"behavior":"Sometimes"})", "Sometimes"},
        Refusal{R"("post_processor":null)", R"("post_processor":{"type":"BertProcessing"})",
                "post_processor.cls"},
        Refusal{R"("post_processor":null)",
                R"("post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["x",9]})",
                "id 9 is not in the vocabulary"},
        Refusal{R"("post_processor":null)",
                R"("post_processor":{"type":"Sequence","processors":[)"
                R"({"type":"BertProcessing","cls":["a",0],"sep":["b",1]},)"
                R"({"type":"RobertaProcessing","cls":["a",0],"sep":["b",1]}]})",
                "processors[1].type"},
        Refusal{
            R"("post_processor":null)",
            R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},)"
            R"({"SpecialToken":{"id":"</s>"}}],"special_tokens":{}})",
            "</s>"},
        Refusal{R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"CTC"})", "CTC"},
        Refusal{R"("decoder":{"type":"ByteLevel"})", R"("decoder":7)", "decoder"}));

TEST(TokenizerRead, TheUnchangedFileWorks) {
  const Tokenizer tokenizer = make(with("", ""));
  EXPECT_EQ(tokenizer.encode("ab<s>ba"), (std::vector<int32_t>{2, 3, 1, 0}));
  EXPECT_EQ(tokenizer.vocabulary_size(), 4);
}

TEST(TokenizerRead, DeepNestingIsRefused) {
  std::string deep;
  for (int k = 0; k < 100000; ++k) deep += R"({"type":"Sequence","normalizers":[)";
  EXPECT_THROW(make(with(R"("normalizer":null)", "\"normalizer\":" + deep)), Error);
}

TEST(TokenizerRead, AMillionMergesAreReadOrRefusedInBoundedTime) {
  std::string merges = R"("merges":["a b")";
  for (int k = 0; k < 1000000; ++k) merges += R"(,"a b")";
  const Tokenizer tokenizer = make(with(R"("merges":["a b")", merges));
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{2}));
}

TEST(TokenizerRead, TextThatIsNotUtf8NamesTheByte) {
  const Tokenizer tokenizer = make(with("", ""));
  try {
    tokenizer.encode("abc\xC3(");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("byte 3 (0xc3)"), std::string::npos) << error.what();
  }
}

// A file of a few bytes, or a megabyte, does not turn a short text into gigabytes.
TEST(TokenizerRead, ExpansionIsBounded) {
  const std::string text(3000, 'a');
  const std::string much(1 << 20, 'b');
  const auto expect_refusal = [](const std::function<void()>& use) {
    try {
      use();
      FAIL() << "it is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("to a text of"), std::string::npos) << error.what();
    }
  };
  const auto replace = [](const std::string& pattern, const std::string& content) {
    return R"({"type":"Replace","pattern":{"Regex":")" + pattern + R"("},"content":")" + content +
           "\"}";
  };
  const auto normalized = [&](const std::string& step) {
    return make(with(R"("normalizer":null)", R"("normalizer":)" + step));
  };
  expect_refusal([&] { normalized(replace(".", much)).encode(text); });
  expect_refusal([&] { normalized(replace("", much)).encode(text); });
  expect_refusal(
      [&] { normalized(R"({"type":"Prepend","prepend":")" + much + "\"}").encode("a"); });
  std::string chain;  // each alone is within the bound
  for (int k = 0; k < 9; ++k) chain += (k == 0 ? "" : ",") + replace(".", "bbbbbbbbbb");
  expect_refusal(
      [&] { normalized(R"({"type":"Sequence","normalizers":[)" + chain + "]}").encode(text); });
  EXPECT_EQ(normalized(replace("c", "ab")).encode("cc"), (std::vector<int32_t>{2, 2}));
  expect_refusal([&] {
    make(with(R"("decoder":{"type":"ByteLevel"})", R"("decoder":)" + replace(".", much)))
        .decode({0, 1});
  });
}

// As Transformers does it: a file of its own before tokenizer_config.json.
TEST(TokenizerRead, ChatTemplatesAreFoundWhereTheyAre) {
  namespace fs = std::filesystem;
  const test::TemporaryDirectory folder;
  const auto template_with = [&](const char* name, const char* text) {
    write_text_file(folder / name, text);
    std::string found;
    const Tokenizer tokenizer = Tokenizer::read(folder.path());
    for (const NamedTemplate& one : tokenizer.config().chat_templates) {
      found += one.name + ": " + one.source + ";";
    }
    return found;
  };
  EXPECT_EQ(template_with("tokenizer.json", with("", "").c_str()), "");
  EXPECT_EQ(template_with("chat_template.json", R"({"chat_template":"of a processor"})"),
            "default: of a processor;");
  EXPECT_EQ(template_with("tokenizer_config.json", R"({"chat_template":"of the config"})"),
            "default: of the config;");
  EXPECT_EQ(template_with("tokenizer_config.json",
                          R"({"chat_template":[{"name":"rag","template":"first"},)"
                          R"({"name":"default","template":"second"}]})"),
            "rag: first;default: second;");
  EXPECT_EQ(template_with("chat_template.jinja", "of its own file"), "default: of its own file;");
  fs::create_directory(folder / "additional_chat_templates");
  EXPECT_EQ(template_with("additional_chat_templates/tool_use.jinja", "of tools"),
            "default: of its own file;tool_use: of tools;");
}

TEST(TokenizerRead, SpecialTokensHaveTheirTexts) {
  const test::TemporaryDirectory folder;
  write_text_file(folder / "tokenizer.json", with("", ""));
  write_text_file(folder / "special_tokens_map.json", R"({"pad_token": "p", "unk_token": "u"})");
  write_text_file(folder / "tokenizer_config.json", R"({"pad_token": {"content": "q"}})");
  const std::vector<std::pair<std::string, std::string>> expected = {{"unk_token", "u"},
                                                                     {"pad_token", "q"}};
  EXPECT_EQ(Tokenizer::read(folder.path()).config().special_tokens, expected);
}

TEST(TokenizerRead, UnknownIdsAreNotDecoded) {
  EXPECT_THROW(make(with("", "")).decode({0, 4}), Error);
  EXPECT_THROW(make(with("", "")).decode({-1}), Error);
}

TEST(TokenizerRead, DirectoryWithoutTheFileIsRefused) {
  EXPECT_THROW(Tokenizer::read("/proc/nonexistent"), Error);
}

// Bytes changed at random: each result either works or is an Error, and none crashes or hangs.
TEST(TokenizerRead, ChangedFilesAreRefusedOrWork) {
  const std::string original = read_text_file(
      std::string(STRATA_TEST_DATA) + "/train/tokenizers/llama2/tokenizer.json", 1 << 20);
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = original;
    for (int change = 0; change < 1 + round % 4; ++change) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 8);
      else
        text[at] = "\"{}[],:0a\\ \xff"[random() % 12];
    }
    try {
      const Tokenizer tokenizer = make(text);
      tokenizer.decode(tokenizer.encode("The quick brown fox <s> 語 👍\n"));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

// Long texts of one kind take time in proportion, whatever the tokenizer makes of them.
TEST(TokenizerRead, LongRunsAreEncodedQuickly) {
  for (const char* kind : {"gpt2", "llama2", "llama3", "metaspace_first"}) {
    const Tokenizer tokenizer =
        Tokenizer::read(std::string(STRATA_TEST_DATA) + "/train/tokenizers/" + kind);
    for (const char* unit : {"a", " ", "the", "\n", "語", "é", "1", "!", "<s", "<|end|>"}) {
      std::string text;
      while (text.size() < 100000) text += unit;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)).empty(), false);
    }
  }
}

}  // namespace
}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
// `strata tokenize` prints the tokens of its three sources in all its forms, and says what is wrong
// with its input.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/config/json.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class Tokenize : public testing::Test {
 protected:
  std::string tokenize(Arguments arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"tokenize", "--model", "model"});
    write_text(sandbox_ / "input", input);
    Process process(arguments, {.directory = sandbox_.path(),
                                .wrap = {"bash", "-c", "\"$@\" < input", "bash"}});
    code_ = process.wait();
    err_ = process.err();
    return process.out();
  }

  void SetUp() override {
    // <e> is put before and after a text.
    std::filesystem::create_directory(sandbox_ / "model");
    write_text(sandbox_ / "model/tokenizer.json",
               R"({"added_tokens":[{"id":4,"content":"<e>","special":true}],)"
               R"("post_processor":{"type":"BertProcessing","cls":["<e>",4],"sep":["<e>",4]},)"
               R"("decoder":{"type":"Fuse"},"model":{"type":"BPE",)"
               R"("vocab":{"a":0,"b":1,"ab":2,"\n":3},"merges":["a b"]}})");
  }

  const Sandbox sandbox_;
  int code_ = 0;
  std::string err_;
};

TEST_F(Tokenize, PrintsIdsOfAnArgumentAFileAndStandardInput) {
  write_text(sandbox_ / "x.txt", "ab\na");
  write_text(sandbox_ / "x.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"\"}\n{\"text\": \"ba\"}\n");
  EXPECT_EQ(tokenize({"--text", "aab"}), "4 0 2 4\n");
  EXPECT_EQ(tokenize({"--text", ""}), "4 4\n");
  EXPECT_EQ(tokenize({"--data", "x.txt", "--special", "off"}), "2 3 0\n");
  EXPECT_EQ(tokenize({"--data", "x.jsonl", "--special", "off"}), "2\n1 0\n");
  EXPECT_NE(err_.find("1 of 3 records have nothing to learn"), std::string::npos) << err_;
  EXPECT_EQ(tokenize({}, "ab"), "4 2 4\n");
  EXPECT_EQ(tokenize({"--data", "-"}, "b\n"), "4 1 3 4\n");
}

TEST_F(Tokenize, LeavesOutAByteOrderMark) {
  write_text(sandbox_ / "x.txt",
             "\xEF\xBB\xBF"
             "ab\na");
  write_text(sandbox_ / "x.jsonl", "\xEF\xBB\xBF{\"text\": \"ab\"}\n");
  EXPECT_EQ(tokenize({"--data", "x.txt", "--special", "off"}), "2 3 0\n");
  EXPECT_EQ(tokenize({"--data", "x.jsonl", "--special", "off"}), "2\n");
  EXPECT_EQ(tokenize({},
                     "\xEF\xBB\xBF"
                     "ab"),
            "4 2 4\n");
}

TEST_F(Tokenize, PrintsPiecesAndTextAndCounts) {
  EXPECT_EQ(tokenize({"--text", "ab\n", "--pieces", "--decode"}),
            "4\t\"<e>\"\n2\t\"ab\"\n3\t\"\\n\"\n4\t\"<e>\"\n\"<e>ab\\n<e>\"\n");
  EXPECT_EQ(tokenize({"--text", "ab", "--pieces", "--decode", "--json"}),
            R"({"ids": [4, 2, 4], "pieces": ["<e>", "ab", "<e>"], "text": "<e>ab<e>"})"
            "\n");
  EXPECT_EQ(tokenize({"--count"}, "aab"), "1 text, 3 bytes, 4 tokens\n");
  EXPECT_EQ(tokenize({"--count", "--json"}, "aab"), R"({"texts": 1, "bytes": 3, "tokens": 4})"
                                                    "\n");
}

// <e> ends what the tokenizer is not told to end itself, and only the answer is learned.
TEST_F(Tokenize, PrintsRecordsAsTrainingTokenizesThem) {
  write_text(sandbox_ / "x.jsonl", R"({"q": "ab", "completion": "ba"})");
  const Arguments records = {"--data", "x.jsonl", "--columns", "prompt=q"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), records.begin(), records.end());
    return tokenize(more);
  };
  EXPECT_EQ(with({}), "4 2 1 0 4\n") << err_;
  EXPECT_EQ(with({"--special", "off"}), "2 1 0\n");
  EXPECT_EQ(with({"--pieces", "--special", "off"}), "2\t\"ab\"\t-\n1\t\"b\"\t+\n0\t\"a\"\t+\n");
  EXPECT_EQ(with({"--json", "--train-on", "everything", "--special", "off"}),
            R"({"ids": [2, 1, 0], "learned": [true, true, true]})"
            "\n");
  EXPECT_EQ(with({"--count"}), "1 text, 31 bytes of records, 5 tokens\n");
}

TEST_F(Tokenize, PrintsChatsByTheirTemplate) {
  std::filesystem::create_directory(sandbox_ / "chats");
  write_text(sandbox_ / "chats/README.md", "about them");
  write_text(sandbox_ / "chats/train.jsonl", R"({"messages": [{"role": "user", "content": "a"},)"
                                             R"( {"role": "assistant", "content": "b"}]})");
  write_text(sandbox_ / "t.jinja", "{% for m in messages %}{{ m.content }}{{ '\n' }}{% endfor %}");
  const Arguments chats = {"--data", "chats", "--chat-template", "t.jinja", "--json"};
  EXPECT_EQ(tokenize(chats), R"({"ids": [0, 3, 1, 3], "learned": [false, false, true, true]})"
                             "\n")
      << err_;
}

TEST_F(Tokenize, InitLearnsWhatRecordsSay) {
  const auto tokenizer_of = [&](const char* data, const char* out) {
    Process process({"init", "--data", data, "--out", out, "--vocab-size", "300", "--hidden", "64",
                     "--layers", "1", "--heads", "4", "--columns", "prompt=q"},
                    {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return read_text(sandbox_ / out + "/tokenizer.json");
  };
  write_text(sandbox_ / "x.txt", "the ship the ship the pier");
  write_text(sandbox_ / "x.jsonl", R"({"q": "the ship", "completion": " the ship the pier"})");
  EXPECT_EQ(tokenizer_of("x.txt", "a"), tokenizer_of("x.jsonl", "b"));
}

TEST_F(Tokenize, SaysWhatIsWrong) {
  const auto expect_error = [&](const Arguments& arguments, const char* named) {
    EXPECT_EQ(tokenize(arguments, "\xFF"), "");
    EXPECT_EQ(code_, 2) << err_;
    EXPECT_NE(err_.find(named), std::string::npos) << err_;
  };
  write_text(sandbox_ / "x.jsonl", "{\"tex\": \"ab\"}\n");
  expect_error({}, "byte 0 (0xff): not UTF-8");
  expect_error({"--data", "x.jsonl"}, "x.jsonl:1: not a known record: it has tex");
  expect_error({"--data", "none"}, "none: No such file");
  expect_error({"--data", "x.jsonl", "--text", "a"}, "two sources of one text");
  expect_error({"--text", "a", "--count", "--pieces"}, "a count shows no tokens");
  std::filesystem::remove(sandbox_ / "model/tokenizer.json");
  expect_error({"--text", "a"}, "neither tokenizer.json nor tokenizer.model");
}

}  // namespace
}  // namespace strata::cli::test

// SPDX-License-Identifier: Apache-2.0
// --bad-records skip: what is left trains as if the bad records had never been there, whatever is
// bad about them and wherever they stand; they are counted, and a file of nothing else is an error.
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

const std::string kTaught =
    R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"An answer"}]})"
    "\n";

std::vector<std::string> bad_lines() {
  return {"{\n",
          "7\n",
          R"({"messages":[{"role":"bot","content":"Q"}]})"
          "\n",
          R"({"messages":"no list"})"
          "\n",
          R"({"question":"Q","answer":"A"})"
          "\n",
          R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],)"
          R"("images":["a.png"]})"
          "\n",
          "{\"messages\": \"\xff\"}\n"};
}

class BadRecords : public DataTest {
 protected:
  static DataOptions skipping(int64_t threads = 1) {
    return {.length = 96,
            .samples = config::SampleLayout::kPacked,
            .skips_bad_records = true,
            .threads = {.count_max = threads, .text_bytes = 1}};
  }
};

TEST_F(BadRecords, OthersTrainAsIfTheyWereNotThere) {
  const std::string good = write("good.jsonl", kTaught + kTaught + kTaught);
  std::string mixed = kTaught;
  for (const std::string& bad : bad_lines()) mixed += bad;
  mixed += "\n" + kTaught + bad_lines().back() + kTaught;
  const std::string path = write("mixed.jsonl", mixed);
  const std::string wanted = told_of(open(good, skipping()));
  for (const int64_t threads : {1, 2, 3}) {
    const test::LogCapture captured;
    EXPECT_EQ(told_of(open(path, skipping(threads))), wanted) << threads;
    EXPECT_TRUE(contains(captured.text(),
                         "mixed.jsonl: 8 of 11 records cannot be read and are left out (lines 2, "
                         "3, 4, 5, 6, ...), the first because of this: "))
        << captured.text();
    EXPECT_TRUE(contains(captured.text(), "mixed.jsonl: line 2, column 2: ")) << captured.text();
  }
}

TEST_F(BadRecords, EachKindIsFound) {
  const std::string wanted = told_of(open(write("good.jsonl", kTaught), skipping()));
  for (const std::string& bad : bad_lines()) {
    const std::string after = write("after.jsonl", kTaught + bad);
    const std::string before = write("before.jsonl", bad + kTaught);
    EXPECT_NE(error_of(after, {.length = 4}), "no error") << bad;
    EXPECT_EQ(told_of(open(after, skipping())), wanted) << bad;
    EXPECT_EQ(told_of(open(before, skipping())), wanted) << bad;
    EXPECT_TRUE(contains(
        warnings_of(before, skipping()),
        "1 of 2 records cannot be read and is left out (line 1), the first because of this: "))
        << bad;
  }
}

TEST_F(BadRecords, ItemsOfArraysAreSkippedToo) {
  const std::string good = R"({"prompt":"p","completion":"an answer"})";
  const std::string wanted = told_of(open(write("good.json", "[" + good + "]"), skipping()));
  const std::string path = write("a.json", "[7,\n" + good + ",\n{\"prompt\":\"p\"}]");
  EXPECT_EQ(told_of(open(path, skipping())), wanted);
  EXPECT_TRUE(contains(warnings_of(path, skipping()),
                       "2 of 3 records cannot be read and are left out (lines 1, 3), "));
  EXPECT_TRUE(contains(error_of(write("b.json", "[" + good), skipping()), "does not end"));
  EXPECT_TRUE(contains(warnings_of(write("c.json", "[7, 8, " + good + "]"), skipping()),
                       "2 of 3 records cannot be read and are left out (line 1), "));
}

TEST_F(BadRecords, TemplatesThatRefuseAChatLeaveItOut) {
  const std::string path = write(
      "t.jinja",
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
      "{% endif %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}");
  DataOptions options = skipping();
  options.chat_template = path;
  const std::string refused =
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"Q"},)"
      R"({"role":"assistant","content":"A"}]})"
      "\n";
  const std::string wanted = told_of(open(write("good.jsonl", kTaught), options));
  const std::string mixed = write("mixed.jsonl", kTaught + refused);
  EXPECT_EQ(told_of(open(mixed, options)), wanted);
  EXPECT_TRUE(contains(warnings_of(mixed, options), "no system"));
}

TEST_F(BadRecords, AFileOfNothingElseIsAnError) {
  std::string all;
  for (const std::string& bad : bad_lines()) all += bad;
  const std::string message = error_of(write("a.jsonl", all), skipping());
  EXPECT_TRUE(
      contains(message, "a.jsonl: all 7 records cannot be read, the first because of this: "))
      << message;
  EXPECT_TRUE(contains(error_of(write("b.jsonl", bad_lines().front()), skipping()),
                       "b.jsonl: its only record cannot be read: "));
}

// Else a stray first record would throw away the file.
TEST_F(BadRecords, MistakesOfTheFileOrTheOptionsAreNotSkipped) {
  const std::string text = R"({"text":"words"})"
                           "\n";
  EXPECT_TRUE(contains(error_of(write("a.jsonl", text + kTaught + kTaught), skipping()),
                       "a.jsonl:2: holds messages, but the file began with text"));
  DataOptions options = skipping();
  options.chat_template = "rag";
  const std::string chats = write("b.jsonl", kTaught + kTaught);
  const std::string missing = error_of(chats, options);
  EXPECT_TRUE(contains(missing, "b.jsonl:1: the model has no chat template")) << missing;
  options.chat_template = write("broken.jinja", "{% for %}");
  EXPECT_TRUE(contains(error_of(chats, options), "broken.jinja:1: "));
  options.skips_bad_records = false;
  const std::string counted = error_of(chats, options);
  EXPECT_FALSE(contains(counted, "--bad-records")) << "it would not help: " << counted;
}

// How much memory a chat may take depends on the budget and the threads.
TEST_F(BadRecords, WhatDoesNotFitIsNotSkipped) {
  const std::string long_one =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":")" +
      words(17 << 20) + "\"}]}\n";
  DataOptions options = skipping(16);
  options.room_bytes = 96 << 20;
  const std::string path = write("a.jsonl", kTaught + long_one);
  try {
    open(path, options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit) << error.what();
  }
}

TEST_F(BadRecords, TheRefusalNamesTheOption) {
  EXPECT_TRUE(contains(error_of(write("b.jsonl", kTaught + "{\n"), {.length = 1}),
                       "; --bad-records skip leaves it out"));
  const std::string message =
      error_of(write("a.jsonl", kTaught + "{\n" + kTaught + "{\n"), {.length = 1});
  EXPECT_TRUE(contains(message,
                       "a.jsonl are refused (lines 2, 4; --bad-records skip leaves them "
                       "out)"))
      << message;
}

}  // namespace
}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
// Data that would be read as something else, or teach nothing, is refused or told with counts and
// lines.
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

const char* const kTaught =
    R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})"
    "\n";

TEST_F(DataTest, UnknownRolesAreRefused) {
  for (const char* role : {"human", "gpt", "model", "Assistant", ""}) {
    const std::string line = fmt::format(
        R"({{"messages":[{{"role":"{}","content":"Q"}},{{"role":"assistant","content":"A"}}]}})",
        role);
    const std::string message = error_of(write("a.jsonl", kTaught + line), {.length = 1});
    EXPECT_TRUE(contains(message, fmt::format("a.jsonl:2: the role \"{}\" is not known", role)))
        << message;
  }
  EXPECT_EQ(error_of(write("b.jsonl",
                           R"({"messages":[{"role":"developer","content":"D"},)"
                           R"({"role":"tool","content":"T"},{"role":"assistant","content":"A"}]})"),
                     {.length = 1}),
            "no error");
}

TEST_F(DataTest, RefusedRecordsAreCounted) {
  const std::string bad = R"({"messages":[{"role":"bot","content":"Q"}]})" + std::string("\n");
  const std::string path = write("a.jsonl", kTaught + bad + kTaught + bad + "{\n" + kTaught);
  const std::string message = error_of(path, {.length = 1});
  EXPECT_TRUE(contains(message, "a.jsonl:2: the role \"bot\" is not known")) << message;
  EXPECT_TRUE(contains(message, "; 3 of 6 records of ")) << message;
  EXPECT_TRUE(contains(message, "a.jsonl are refused (lines 2, 4, 5;")) << message;
}

TEST_F(DataTest, RecordsThatTeachNothingAreCounted) {
  const std::string idle = R"({"messages":[{"role":"user","content":"Q"}]})"
                           "\n";
  const std::string silent =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":""}]})"
      "\n";
  const std::string text =
      warnings_of(write("a.jsonl", kTaught + idle + "\n" + silent + kTaught + idle), {.length = 1});
  EXPECT_TRUE(contains(text,
                       "a.jsonl: 3 of 5 records have no assistant message with text "
                       "(lines 2, 4, 6)"))
      << text;
  EXPECT_TRUE(contains(error_of(write("b.jsonl", idle + silent), {.length = 1}),
                       "there is nothing to learn, all 2 records are left out: 2 with no assistant "
                       "message with text (lines 1, 2) (complete them)"));
  EXPECT_TRUE(contains(error_of(write("e.jsonl", silent), {.length = 1}),
                       "there is nothing to learn, its only record is left out: 1 with no"));
  EXPECT_TRUE(
      contains(warnings_of(write("f.jsonl", kTaught + silent), {.length = 1}),
               "1 of 2 records has no assistant message with text (line 2): it is left out, "
               "with nothing to learn (complete or remove it)"));

  std::string many = R"({"prompt":"p","completion":"c"})";
  for (int k = 0; k < 7; ++k)
    many +=
        "\n"
        R"({"prompt":"p","completion":""})";
  const std::string cut = warnings_of(write("c.jsonl", many), {.length = 1});
  EXPECT_TRUE(contains(cut, "7 of 8 records have an empty completion (lines 2, 3, 4, 5, 6, ...)"))
      << cut;
  EXPECT_EQ(warnings_of(write("d.jsonl", R"({"prompt":"p","completion":"c"})"), {.length = 1}), "");
}

// Not even the end of an empty answer is learned.
TEST_F(DataTest, RecordsThatTeachNothingAreLeftOut) {
  const std::string silent =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":""}]})"
      "\n";
  const std::string empty = R"({"prompt":"p","completion":""})"
                            "\n";
  const std::string full = R"({"prompt":"p","completion":"c"})"
                           "\n";
  for (const auto layout : {config::SampleLayout::kStream, config::SampleLayout::kPacked}) {
    const DataOptions options = {.length = 60, .keeps_tail = true, .samples = layout};
    EXPECT_EQ(told_of(open(write("a.jsonl", silent + kTaught + silent), options)),
              told_of(open(write("b.jsonl", kTaught), options)));
    EXPECT_EQ(told_of(open(write("c.jsonl", full + empty + full), options)),
              told_of(open(write("d.jsonl", full + full), options)));
  }
}

TEST_F(DataTest, RecordsBeyondTheFirstTokenAreCounted) {
  const DataOptions options = {.length = 1, .samples = config::SampleLayout::kRecord};
  EXPECT_TRUE(
      contains(warnings_of(write("a.jsonl", R"({"prompt":"pp","completion":"c"})"
                                            "\n"
                                            R"({"prompt":"p","completion":"c"})"),
                           options),
               "1 of 2 records has nothing to learn in the first 1 token (line 1): it is left "
               "out (shorten"));
}

TEST_F(DataTest, CompletionsThatNoSampleHoldsAreCounted) {
  // Samples of 4 tokens: [pppp][pppc][|pc|][ppp.. and 2 behind the last whole sample.
  const std::string path = write("a.jsonl", R"({"prompt":"ppppppp","completion":"c"})"
                                            "\n"
                                            R"({"prompt":"p","completion":"c"})"
                                            "\n"
                                            R"({"prompt":"ppp","completion":"c"})");
  const std::string text = warnings_of(path, {.length = 4});
  EXPECT_TRUE(contains(text, "1 of 4 samples of 4 tokens have only prompts")) << text;
  EXPECT_FALSE(contains(text, "after the last whole sample")) << text;
  const std::string longer = warnings_of(path, {.length = 13});
  EXPECT_TRUE(contains(longer,
                       "the completions of the last 1 of 3 records, from line 3 on, come "
                       "after the last whole sample of 13 tokens"))
      << longer;
  EXPECT_EQ(warnings_of(path, {.length = 13, .keeps_tail = true}), "");
}

TEST_F(DataTest, JsonLinesNamedAsTextAreRefused) {
  const std::string expected =
      "its first line is a JSON record, but .txt files are read as plain "
      "text (rename it to .jsonl";
  EXPECT_TRUE(contains(error_of(write("a.txt", kTaught), {.length = 1}), expected));
  EXPECT_TRUE(
      contains(error_of(write("c/b.txt", "\n" + std::string(kTaught)), {.length = 1}), expected));
  EXPECT_TRUE(contains(error_of(folder_ / "c", {.length = 1}), expected));
  const std::string long_line = "{\"text\":\"" + std::string(2 << 20, 'a') + "\"}\n";
  EXPECT_TRUE(contains(error_of(write("long.txt", long_line), {.length = 1}), expected));
  for (const char* text : {"{ not JSON", "{\"a\": 1}\n", "{\n\"text\": \"a\"}", "{"}) {
    EXPECT_EQ(error_of(write("plain.txt", text), {.length = 1}), "no error") << text;
  }
}

TEST_F(DataTest, OtherJsonNamedAsTextIsReadWithAWarning) {
  for (const char* text :
       {R"({"question": "a", "answer": "b"})", "[\n  {\"messages\": []}]", "[{\"a\":1}]"}) {
    EXPECT_TRUE(contains(warnings_of(write("j.txt", text), {.length = 1}), "it begins with JSON"))
        << text;
  }
  for (const char* text : {"{curly} words", "[1] a list", "[ {x} ]"}) {
    EXPECT_FALSE(contains(warnings_of(write("p.txt", text), {.length = 1}), "JSON")) << text;
  }
}

// The room is checked while a line grows, not when it has been parsed.
TEST_F(DataTest, WhatDoesNotFitTheRoomIsRefused) {
  const auto refusal = [&](const std::string& path, int64_t room_bytes) -> std::string {
    try {
      open(path, {.length = 8, .room_bytes = room_bytes});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      return error.what();
    }
    return "no error";
  };
  const std::string record = "{\"text\":\"" + words(2 << 20) + "\"}\n";
  const std::string path = write("a.jsonl", "{\"text\":\"b\"}\n" + record);
  EXPECT_TRUE(contains(refusal(path, 8 << 20), "a.jsonl:2: the line has more than 1.2 MiB"));
  EXPECT_EQ(refusal(path, 20 << 20), "no error");
  const std::string lines = write("b.txt", words(5 << 20));
  EXPECT_TRUE(contains(refusal(lines, 8 << 20), "its tokens take more than the 8 MiB"));
  EXPECT_EQ(refusal(lines, 20 << 20), "no error");
}

}  // namespace
}  // namespace strata::data

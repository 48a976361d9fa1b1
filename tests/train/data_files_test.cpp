// SPDX-License-Identifier: Apache-2.0
// What files hold decides what a sample is where nobody says it. Reading many says how far it is.
#include "engine/data/data_files.h"

#include <chrono>
#include <thread>

#include "engine/base/reading_progress.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

using config::SampleLayout;

class NaturalLayout : public DataTest {
 protected:
  static SampleLayout of(const std::vector<std::string>& files,
                         const std::vector<std::string>& columns = {}) {
    return natural_layout(files, {.columns = RecordColumns::parse(columns)});
  }

  const std::string prompts_ = write("prompts.jsonl", R"({"prompt":"a","completion":"b"})");
  const std::string texts_ = write("texts.jsonl", R"({"text":"a"})");
};

TEST_F(NaturalLayout, RecordsWithPromptsArePacked) {
  EXPECT_EQ(of({prompts_}), SampleLayout::kPacked);
  EXPECT_EQ(of({write("array.json", R"([ {"messages":[{"role":"user","content":"a"}]} ])")}),
            SampleLayout::kPacked);
  EXPECT_EQ(of({write("later.jsonl", "\n \n{\"instruction\":\"a\",\"output\":\"b\"}\n")}),
            SampleLayout::kPacked);
  const std::string escaped =
      write("escaped.jsonl", R"({"\u0432\u043e\u043f\u0440\u043e\u0441":"a","answer":"b"})");
  EXPECT_EQ(of({escaped}, {"prompt=вопрос", "completion=answer"}), SampleLayout::kPacked);
  EXPECT_EQ(of({write("no_name", R"({"prompt":"a","completion":"b"})")}), SampleLayout::kPacked);
}

TEST_F(NaturalLayout, AByteOrderMarkIsNoPartOfTheFirstRecord) {
  EXPECT_EQ(of({write("a.jsonl", "\xEF\xBB\xBF{\"prompt\":\"a\",\"completion\":\"b\"}")}),
            SampleLayout::kPacked);
  EXPECT_EQ(of({write("no_name", "\xEF\xBB\xBF{\"prompt\":\"a\",\"completion\":\"b\"}")}),
            SampleLayout::kPacked);
  EXPECT_EQ(of({write("b.jsonl", "\xEF\xBB\xBF{\"text\":\"a\"}")}), SampleLayout::kStream);
}

TEST_F(NaturalLayout, AllOtherDataIsAStream) {
  EXPECT_EQ(of({}), SampleLayout::kStream);
  EXPECT_EQ(of({texts_}), SampleLayout::kStream);
  EXPECT_EQ(of({write("a.txt", "a")}), SampleLayout::kStream);
  EXPECT_EQ(of({write_ids<uint16_t>("a.bin", {1, 2, 3})}), SampleLayout::kStream);
  EXPECT_EQ(of({prompts_, texts_}), SampleLayout::kStream);
  EXPECT_EQ(of({prompts_, write("b.txt", "b")}), SampleLayout::kStream);
}

TEST_F(NaturalLayout, ColumnsDecideWhichRecordsHavePrompts) {
  const std::string own = write("own.jsonl", R"({"text":"a","question":"b","answer":"c"})");
  EXPECT_EQ(of({own}), SampleLayout::kStream);
  EXPECT_EQ(of({own}, {"prompt=question", "completion=answer"}), SampleLayout::kPacked);
}

// Readers of the data say what is wrong with it.
TEST_F(NaturalLayout, WhatCannotBeReadIsAStream) {
  EXPECT_EQ(of({folder_ / "missing.jsonl"}), SampleLayout::kStream);
  EXPECT_EQ(of({write("empty.jsonl", "")}), SampleLayout::kStream);
  EXPECT_EQ(of({write("cut.jsonl", R"({"prompt":"a",)")}), SampleLayout::kStream);
  EXPECT_EQ(of({write("other.jsonl", R"({"number":1})")}), SampleLayout::kStream);
  EXPECT_EQ(of({write("cut.json", R"([{"prompt")")}), SampleLayout::kStream);
  EXPECT_EQ(of({write("table.parquet", "PAR1")}), SampleLayout::kStream);
}

TEST_F(NaturalLayout, ALongFirstRecordCountsAsAShortOne) {
  const std::string prompt(17 << 20, 'a');
  EXPECT_EQ(of({write("a.jsonl", R"({"completion":"b","prompt":")" + prompt + "\"}")}),
            SampleLayout::kPacked);
  EXPECT_EQ(of({write("b.json", R"([ {"a\"b": {"text": "}"}, "list": [1, {"prompt": 2}], )"
                                R"("completion" : "{", "prompt":")" +
                                    prompt + "\"}]")}),
            SampleLayout::kPacked);
  EXPECT_EQ(of({write("c.jsonl", R"({"text":")" + prompt + "\"}")}), SampleLayout::kStream);
}

TEST(ReadingProgress, SaysHowMuchIsReadAndHowLongTheRestTakes) {
  const test::LogCapture captured;
  ReadingProgress seldom("data: a.jsonl", 3 << 20);
  seldom.add(1 << 20);
  EXPECT_EQ(captured.text(), "");
  ReadingProgress often("data: a.jsonl", 3 << 20, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  often.add(1 << 20);
  EXPECT_TRUE(contains(captured.text(), "data: a.jsonl: 1 MiB of 3 MiB read, about 1 s to go"))
      << captured.text();
  const std::string said = captured.text();
  often.add(2 << 20);
  EXPECT_EQ(captured.text(), said);
}

}  // namespace
}  // namespace strata::data

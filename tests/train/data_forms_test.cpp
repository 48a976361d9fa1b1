// SPDX-License-Identifier: Apache-2.0
// Records of any form, from several files, folders and JSON arrays, become the tokens that they
// name; what cannot be followed is refused with its place.
#include <algorithm>

#include "engine/data/record_stream.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

class DataForms : public DataTest {
 protected:
  // All tokens as text, with "|" for ends, and below them a '^' for each target.
  static std::string shown(const Dataset& data) {
    const TokenSource& source = data.train();
    std::string text;
    std::string marks = " ";
    for (int64_t k = 0; k < source.sample_count(); ++k) {
      std::vector<int32_t> inputs(static_cast<size_t>(source.length()));
      std::vector<int32_t> targets(inputs.size());
      source.sample(k, inputs.data(), targets.data());
      for (size_t at = 0; at < inputs.size(); ++at) {
        text += inputs[at] == 256 ? '|' : static_cast<char>(inputs[at]);
        marks += targets[at] < 0 ? ' ' : '^';
      }
    }
    return text + "\n" + marks;
  }
  std::string read(const std::vector<std::string>& paths, DataOptions options = {}) const {
    options.length = 1;
    options.keeps_tail = true;
    return shown(open(paths, options));
  }
};

TEST_F(DataForms, AnArrayIsReadAsItsItems) {
  const std::string array = " [ {\"text\":\"a]b,\\\"{\"},\n{\"text\":\"c\", \"n\":[1,{}]} ]\n";
  EXPECT_EQ(read({write("a.json", array)}),
            read({write("a.jsonl", "{\"text\":\"a]b,\\\"{\"}\n{\"text\":\"c\"}")}));
  const auto message = [&](const std::string& text) {
    return error_of(write("b.json", text), {.length = 1});
  };
  EXPECT_TRUE(
      contains(message("[{\"text\":\"a\"},\n{\"txt\":1}]"), "b.json:2: not a known record"));
  EXPECT_TRUE(contains(message("[{\"text\":\"a\"}"), "b.json:1: the array does not end"));
  EXPECT_TRUE(contains(message("[{\"text\":\"a\"}] x"), "something follows the array"));
  EXPECT_TRUE(contains(message("[{\"text\":\"a\"} {}]"), "b.json: line 1, column "));
  EXPECT_TRUE(contains(message("[]"), "it has no record"));
  EXPECT_TRUE(
      contains(message("[{\"text\":\"a\"},,{\"text\":\"b\"}]"), "an item of the array is empty"));
  EXPECT_TRUE(contains(message("[{\"text\":\"a\"},]"), "b.json:1: an item of the array is empty"));
}

TEST_F(DataForms, AByteOrderMarkBeforeAFileIsLeftOut) {
  const auto same = [&](const std::string& name, const std::string& text) {
    EXPECT_EQ(read({write("marked" + name, "\xEF\xBB\xBF" + text)}), read({write(name, text)}));
  };
  same("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
  same("a.json", "[{\"prompt\":\"a\",\"completion\":\"b\"}]");
  same("a.txt", "text");
  EXPECT_TRUE(contains(error_of(write("b.txt", "\xEF\xBB\xBFt\xFF"), {.length = 1}),
                       "b.txt: byte 4 (0xff) is not UTF-8"));
  EXPECT_TRUE(contains(error_of(write("c.txt", "\xEF\xBB\xBF{\"text\":\"a\"}"), {.length = 1}),
                       "its first line is a JSON record"));
}

// The reader's blocks have 1 MiB, so that items and escapes lie across their ends.
TEST_F(DataForms, AnArrayIsReadInBlocks) {
  std::string array = "[";
  for (int k = 0; k < 40; ++k) {
    array += (k == 0 ? "" : ",\n") + std::string("\"") + std::string(99'990 + k, 'a') + "\\\"]\"";
  }
  ArrayReader items(write("a.json", array + "]"), [](int64_t, int64_t) {});
  for (int k = 0; k < 40; ++k) {
    ASSERT_TRUE(items.next());
    EXPECT_EQ(items.text().size(), static_cast<size_t>(99'990 + k + 5));
    EXPECT_EQ(items.number(), k + 1);
  }
  EXPECT_FALSE(items.next());
}

TEST_F(DataForms, ColumnsNameTheMembers) {
  const std::string path =
      write("a.jsonl", R"({"text":"no","question":"12","answer":"ab","completion":"x"})");
  EXPECT_EQ(read({path}, {.columns = {"prompt=question", "completion=answer"}}), "12ab\n  ^^^");
  const std::string chat =
      write("b.jsonl", R"({"turns":[{"who":"user","says":"Q"},{"who":"assistant","says":"A"}]})");
  EXPECT_EQ(read({chat}, {.columns = {"messages=turns", "role=who", "content=says"}}),
            read({write("c.jsonl", R"({"messages":[{"role":"user","content":"Q"},)"
                                   R"({"role":"assistant","content":"A"}]})")}));
  const auto message = [&](const std::vector<std::string>& columns) {
    return error_of(path, {.length = 1, .columns = columns});
  };
  EXPECT_TRUE(
      contains(message({"prompt=query"}),
               "a.jsonl:1: the record has no \"query\", which --columns names as prompt (give one "
               "of text, question, answer, completion)"));
  EXPECT_TRUE(contains(message({"promt=question"}), "did you mean prompt?"));
  EXPECT_TRUE(contains(message({"prompt"}), "not a pair of names"));
  EXPECT_TRUE(contains(message({"prompt=a", "prompt=b"}), "prompt is given twice"));
}

// Axolotl's names of ShareGPT's records.
TEST_F(DataForms, RolesOfRecordsWithOwnNamesMayBeShareGpts) {
  const std::string text =
      R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})";
  const std::string path = write("a.jsonl", text);
  EXPECT_EQ(read({path}, {.columns = {"messages=conversations", "role=from", "content=value"}}),
            read({path}));
}

TEST_F(DataForms, AWrongMemberHasTheNameThatTheFileGivesIt) {
  const auto message = [&](const char* text, const std::vector<std::string>& columns) {
    return error_of(write("a.jsonl", text), {.length = 1, .columns = columns});
  };
  const std::vector<std::string> pair = {"prompt=q", "completion=ans"};
  EXPECT_TRUE(contains(message(R"({"q":"a","ans":3})", pair),
                       "a.jsonl:1: \"ans\" is 3, not a string (write it in quotes)"));
  EXPECT_TRUE(
      contains(message(R"({"q":"a","ans":null})", pair),
               "\"ans\" is null, not a string (write \"\" where there is no text, or take"));
  EXPECT_TRUE(contains(message(R"({"q":{},"ans":"b"})", pair),
                       "\"q\" is an object, not a string (write a text in quotes)"));
  EXPECT_TRUE(contains(message(R"({"turns":"hi"})", {"messages=turns"}),
                       "\"turns\" is the string \"hi\", not a list of messages (write [{"));
  EXPECT_TRUE(contains(message(R"({"q":"a","bb":"b"})", {"prompt=q"}), "it has q, bb (write in"));
}

TEST_F(DataForms, TheReportCountsRecordsAndSamples) {
  const std::string one = R"({"prompt":"1","completion":"a"})";
  const auto report = [&](const std::string& text) {
    return open(write("a.jsonl", text), {.length = 8, .samples = config::SampleLayout::kPacked})
        .description();
  };
  EXPECT_TRUE(contains(report(one), "1 record in 1 sample; 75% of it is padding")) << report(one);
  std::string many;
  for (int k = 0; k < 5; ++k) many += one + "\n";
  EXPECT_TRUE(contains(report(many), "5 records share 2 samples without seeing each other; 38% of"))
      << report(many);
}

// Spark writes a folder where others write a file.
TEST_F(DataForms, AFolderNamedLikeAFileIsAFolder) {
  write("spark/train.jsonl/part-0.jsonl", R"({"text":"a"})");
  EXPECT_EQ(read({folder_ / "spark"}), read({folder_ / "spark/train.jsonl/part-0.jsonl"}));
}

TEST_F(DataForms, AWordThatTakesTooMuchMemoryIsRefused) {
  const auto refusal = [&](const char* name, const std::string& text) -> std::string {
    try {
      open(write(name, text), {.length = 1, .room_bytes = 40 << 20});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      return error.what();
    }
    return "no error";
  };
  const std::string word(2 << 20, 'a');
  EXPECT_TRUE(contains(refusal("a.jsonl", "{\"text\":\"" + word + "\"}"),
                       "a.jsonl:1: 2 MiB of it have no white space"));
  EXPECT_TRUE(contains(refusal("a.txt", word), "a.txt: 2 MiB of it"));
  EXPECT_EQ(refusal("b.txt", words(2 << 20)), "no error");
}

// Alpaca's own file has the whole text of each record too.
TEST_F(DataForms, RecordsOfTwoKindsAreReadAsOneWithAWarning) {
  const std::string path = write("a.jsonl", R"({"instruction":"1","output":"b","text":"1\nb"})");
  EXPECT_TRUE(contains(warnings_of(path, {.length = 1}),
                       "a.jsonl:1: the records have text and also instruction and output: text is "
                       "read (give --columns output=output for instruction and output)"));
  EXPECT_EQ(read({path}, {.columns = {"output=output"}}), "1\nb\n  ^^");
}

TEST_F(DataForms, AHistoryIsNotDroppedInSilence) {
  const auto error = [&](const std::string& history) {
    return error_of(
        write("a.jsonl", R"({"instruction":"1","output":"b","history":)" + history + "}"),
        {.length = 1});
  };
  EXPECT_TRUE(contains(error(R"([["0","a"]])"), "a.jsonl:1: its \"history\" is read in chats"));
  EXPECT_EQ(error("[]"), "no error");
}

TEST_F(DataForms, AChatThatGivesTwoTextsCountsThem) {
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{% for m in messages %}{{ m.content if loop.last or m.role == 'user' else '-' }}"
      "{% endfor %}");
  const std::string path =
      write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},)"
                       R"({"role":"assistant","content":"A"},{"role":"user","content":"R"},)"
                       R"({"role":"assistant","content":"B"}]})");
  const Dataset data =
      Dataset::open({path}, &tokenizer,
                    {.length = 8, .vocabulary = 300, .samples = config::SampleLayout::kPacked});
  EXPECT_TRUE(contains(unwrapped(data.description()), "JSON lines of messages, 1 record"))
      << data.description();
  EXPECT_TRUE(contains(data.description(), "2 texts share 1 sample")) << data.description();
}

TEST_F(DataForms, ShareGptHasSystemsToolsAndOtherNames) {
  EXPECT_EQ(read({write("a.jsonl", R"({"system":"S","conversations":[{"from":"human","value":"Q"},)"
                                   R"({"from":"chatgpt","value":"A"}]})")}),
            read({write("b.jsonl",
                        R"({"messages":[{"role":"system","content":"S"},)"
                        R"({"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})")}));
}

TEST_F(DataForms, ShareGptCallsTools) {
  const std::string theirs = write(
      "a.jsonl", R"({"tools":"[{\"name\":\"f\"}]","conversations":[{"from":"Human","value":"Q"},)"
                 R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"a\":1}}"},)"
                 R"({"from":"observation","value":"3"},{"from":"GPT","value":"A"}]})");
  const std::string ours = write(
      "b.jsonl",
      R"({"tools":[{"name":"f"}],"messages":[{"role":"user","content":"Q"},{"role":"assistant",)"
      R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}}]},)"
      R"({"role":"tool","content":"3"},{"role":"assistant","content":"A"}]})");
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{{ tools|tojson }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
      "{{ m.tool_calls|tojson if m.tool_calls }};{% endfor %}");
  const auto tokens = [&](const std::string& path) {
    const auto data =
        Dataset::open({path}, &tokenizer, {.length = 1, .vocabulary = 300, .keeps_tail = true});
    return shown(data);
  };
  EXPECT_EQ(tokens(theirs), tokens(ours));
  const std::string error =
      error_of(write("c.jsonl", R"({"conversations":[{"from":"human","value":"Q"},)"
                                R"({"from":"function_call","value":"call f"}]})"),
               {.length = 1});
  EXPECT_TRUE(contains(error, "c.jsonl:1: a message from function_call is no call")) << error;
}

// Files of tables have every member in every row.
TEST_F(DataForms, MembersOfMessagesThatAreNullAreNotThere) {
  const auto of = [&](const char* name, const std::string& null) {
    return write(name, R"({"messages":[{"role":"user","content":"Q")" + null +
                           R"(},{"role":"assistant","content":"A")" + null + "}]}");
  };
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{% for m in messages %}{{ m.content }}{% if m.tool_calls is defined %}"
      "{{ m.tool_calls|length }}{% endif %}{% endfor %}");
  const auto tokens = [&](const std::string& path) {
    return shown(
        Dataset::open({path}, &tokenizer, {.length = 1, .vocabulary = 300, .keeps_tail = true}));
  };
  EXPECT_EQ(tokens(of("a.jsonl", R"(,"tool_calls":null)")), tokens(of("b.jsonl", "")));
}

TEST_F(DataForms, WhatIsNoTextAndPreferencesAreRefusedByName) {
  const auto error = [&](const std::string& record) {
    return error_of(write("a.jsonl", record), {.length = 1});
  };
  const std::string chat = R"("messages":[{"role":"user","content":"Q"},)"
                           R"({"role":"assistant","content":"A"}])";
  EXPECT_TRUE(
      contains(error("{" + chat + R"(,"images":["a.jpg"]})"), "\"images\" are not trained"));
  EXPECT_EQ(error("{" + chat + R"(,"images":[]})"), "no error");
  EXPECT_TRUE(contains(error(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
                       "a message has a part of type \"image_url\""));
  EXPECT_TRUE(contains(error(R"({"prompt":"a","completion":"b","label":false})"), "(KTO)"));
  EXPECT_EQ(error(R"({"prompt":"a","completion":"b","label":true})"), "no error");
  EXPECT_TRUE(contains(error(R"({"prompt":"a","chosen":"b","rejected":"c"})"), "(DPO)"));
}

TEST_F(DataForms, SeveralFilesFollowOneAnother) {
  const std::string a = write("a.jsonl", R"({"text":"a"})");
  const std::string b = write("b.txt", "bb");
  write("c/x.jsonl", R"({"text":"x"})");
  write("c/README.md", "about");
  write("c/sub/y.json", R"([{"text":"y"}])");
  write("c/info.json", "{}");
  EXPECT_EQ(read({a, b, folder_ / "c"}), "a|bb|y|x\n ^^^^^^^^");
}

TEST_F(DataForms, FilesOfADirectoryHaveTheirPurposeByName) {
  const auto text = [](const char* word) { return fmt::format(R"({{"text":"{}"}})", word); };
  write("d/train-00000-of-00001.jsonl", text("aa"));
  write("d/validation.jsonl", text("vv"));
  write("d/test.jsonl", text("tt"));
  write("d/other.jsonl", text("oo"));
  const Dataset data = open(folder_ / "d", {.length = 1});
  EXPECT_EQ(shown(data), "aa\n ^^");
  EXPECT_EQ(data.held_out().sample_count(), 2);
  EXPECT_TRUE(contains(warnings_of(folder_ / "d", {.length = 1}), "2 files are not read"));
  write("e/train/a.jsonl", text("aa"));
  write("e/dev/a.jsonl", text("vvv"));
  EXPECT_EQ(open(folder_ / "e", {.length = 1}).held_out().sample_count(), 3);
  EXPECT_TRUE(contains(error_of((write("f/valid.jsonl", text("v")), folder_ / "f"), {.length = 1}),
                       "only files for validation"));
  write("a.jsonl", text("aa"));
  const Dataset apart = open(folder_ / "a.jsonl", {.length = 1, .held_out_data = {folder_ / "f"}});
  EXPECT_EQ(apart.held_out().sample_count(), 1);
}

TEST_F(DataForms, HeldOutDataMayBeElsewhere) {
  const std::string train = write("a.jsonl", R"({"text":"aaaa"})");
  const std::string held = write("b.jsonl", R"({"text":"bbb"})");
  const Dataset data = open(train, {.length = 2, .held_out_data = {held}});
  EXPECT_EQ(data.train().sample_count(), 2);
  EXPECT_EQ(data.held_out().sample_count(), 2);
  EXPECT_NE(data.fingerprint(), open(train, {.length = 2}).fingerprint());
}

TEST_F(DataForms, TextThatIsHeldOutIsAStream) {
  const std::string train = write("a.jsonl", R"({"prompt":"a","completion":"b"})");
  const Dataset data = open(train, {.length = 2,
                                    .held_out_data = {write("b.txt", "bbbb")},
                                    .samples = config::SampleLayout::kPacked});
  EXPECT_EQ(data.held_out().sample_count(), 2);
  EXPECT_EQ(data.train_fingerprint(),
            open(train, {.length = 2, .samples = config::SampleLayout::kPacked}).fingerprint());
  EXPECT_NE(data.held_out_fingerprint(), 0u);
}

TEST_F(DataForms, AReadmeBesideRecordsIsNotMissed) {
  write("g/README.md", "about");
  write("g/a.jsonl", R"({"text":"aaaa"})");
  EXPECT_EQ(warnings_of(folder_ / "g", {.length = 1}), "");
}

class DataWeights : public DataForms {
 protected:
  static std::string turn(const char* role, const char* text, const char* more = "") {
    return fmt::format(R"({{"role":"{}","content":"{}"{}}})", role, text, more);
  }
  static std::string chat(const std::string& first, const std::string& second) {
    return fmt::format(R"({{"messages":[{},{},{},{}]}})", turn("user", "Q"), first,
                       turn("user", "R"), second);
  }
  // The text of the targets.
  std::string learned(const std::string& record, DataOptions options = {}) const {
    const std::string both = read({write("w.jsonl", record)}, options);
    const size_t half = both.rfind('\n');
    std::string text;
    for (size_t k = 0; k < half; ++k) {
      if (both[half + 1 + k] == '^') text += both[k];
    }
    return text;
  }
};

TEST_F(DataWeights, MessagesMayBeLeftOut) {
  const std::string plain = turn("assistant", "A");
  EXPECT_EQ(learned(chat(plain, turn("assistant", "B"))), "A<|im_end|>B<|im_end|>");
  for (const char* off : {R"(,"weight":0)", R"(,"weight":0.0)", R"(,"train":false)"}) {
    EXPECT_EQ(learned(chat(turn("assistant", "A", off), turn("assistant", "B"))), "B<|im_end|>");
    EXPECT_EQ(learned(chat(plain, turn("assistant", "B", off))), "A<|im_end|>");
  }
  EXPECT_EQ(learned(chat(turn("assistant", "A", R"(,"weight":1)"), turn("assistant", "B"))),
            "A<|im_end|>B<|im_end|>");
  const auto message = [&](const std::string& record) {
    return error_of(write("w.jsonl", record), {.length = 1});
  };
  EXPECT_TRUE(
      contains(message(chat(turn("assistant", "A", R"(,"weight":0.5)"), plain)),
               "w.jsonl:1: the weight of message 2 is 0.5, and only 0 and 1 are supported"));
  EXPECT_TRUE(contains(
      message(chat(turn("user", "A", R"(,"train":true)"), plain)),
      "message 2 of the user has \"train\" or \"weight\", but only what the assistant says"));
}

TEST_F(DataWeights, TrainOnChoosesWhatIsLearned) {
  const std::string record = chat(turn("assistant", "A"), turn("assistant", "B"));
  EXPECT_EQ(learned(record, {.train_on = config::TrainOn::kLastAnswer}), "B<|im_end|>");
  EXPECT_EQ(learned(record, {.train_on = config::TrainOn::kEverything}).size(),
            std::string("|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                        "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\nB<|im_end|>")
                .size());
  const std::string pair = R"({"prompt":"12","completion":"ab"})";
  EXPECT_EQ(read({write("p.jsonl", pair)}, {.train_on = config::TrainOn::kEverything}),
            "12ab\n ^^^^");
  EXPECT_EQ(read({write("p.jsonl", pair)}, {.train_on_end = false}), "12ab\n  ^^ ");
}

}  // namespace
}  // namespace strata::data

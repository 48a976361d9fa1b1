// SPDX-License-Identifier: Apache-2.0
// Each form of data is recognised and becomes the right tokens, masks and samples; bad data is
// refused with the place of the fault.
#include "engine/data/data.h"

#include <cstring>

#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

using Ids = std::vector<int32_t>;

struct Sample {
  Ids inputs;
  Ids targets;
};

Sample sample_of(const TokenSource& source, int64_t index) {
  Sample sample{Ids(static_cast<size_t>(source.length())),
                Ids(static_cast<size_t>(source.length()))};
  source.sample(index, sample.inputs.data(), sample.targets.data());
  return sample;
}

// The tokens as text: "|" ends a document, "." is not a target.
std::string shown(const TokenSource& source, bool targets_only) {
  std::string text;
  for (int64_t k = 0; k < source.sample_count(); ++k) {
    const Sample sample = sample_of(source, k);
    for (size_t at = 0; at < sample.inputs.size(); ++at) {
      const int32_t id = targets_only ? sample.targets[at] : sample.inputs[at];
      text += id == 256 ? '|' : id < 0 ? '.' : static_cast<char>(id);
    }
  }
  return text;
}

TEST_F(DataTest, TextIsOneDocumentWithItsEnd) {
  const Dataset data = open(write("a.txt", "hello"), {.length = 5});
  EXPECT_EQ(shown(data.train(), false), "hello");
  EXPECT_EQ(shown(data.train(), true), "ello|");
  EXPECT_EQ(data.token_count(), 6);
  EXPECT_TRUE(contains(unwrapped(data.description()), "text, 1 document 6 tokens; 1 sample of 5"))
      << data.description();
}

TEST_F(DataTest, DirectoryIsReadInOrderOfPaths) {
  write("b.md", "bb");
  write("a/z.txt", "aa");
  write("c.txt", "cc");
  write("ignored.json", "{}");
  const Dataset data = open(folder_.path(), {.length = 8});
  EXPECT_EQ(shown(data.train(), false), "aa|bb|cc");
}

TEST_F(DataTest, JsonLinesOfText) {
  const Dataset data =
      open(write("a.jsonl", "{\"text\":\"one\"}\n\n{\"text\":\"two\",\"meta\":1}"), {.length = 7});
  EXPECT_EQ(shown(data.train(), false), "one|two");
  EXPECT_EQ(shown(data.train(), true), "ne|two|");
}

TEST_F(DataTest, PromptsAreNoTargets) {
  const Dataset data = open(write("a.jsonl", R"({"prompt":"12","completion":"ab"})"
                                             "\n"
                                             R"({"prompt":"34","completion":"cd"})"),
                            {.length = 9});
  EXPECT_EQ(shown(data.train(), false), "12ab|34cd");
  EXPECT_EQ(shown(data.train(), true), ".ab|..cd|");
  EXPECT_EQ(data.train().target_count(0), 6);
}

TEST_F(DataTest, MessagesAreChatMlWithTheAssistantAsTarget) {
  const std::string line =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})";
  const std::string text = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n";
  const auto length = static_cast<int64_t>(text.size()) - 1;
  const Dataset data = open(write("a.jsonl", line), {.length = length});
  EXPECT_EQ(shown(data.train(), false), text.substr(0, text.size() - 1));
  const std::string targets = shown(data.train(), true);
  EXPECT_EQ(targets.substr(targets.size() - 12), "A<|im_end|>.");
  EXPECT_EQ(targets.find_first_not_of('.'), targets.size() - 12);
}

TEST_F(DataTest, AlpacaAndShareGptAreKnown) {
  const Dataset alpaca =
      open(write("a.json", R"({"instruction":"Do","input":"it","output":"ok"})"), {.length = 8});
  EXPECT_EQ(shown(alpaca.train(), false), "Do\nit\nok");
  EXPECT_EQ(shown(alpaca.train(), true), ".....ok|");
  const Dataset share =
      open(write("b.jsonl",
                 R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})"),
           {.length = 20});
  EXPECT_TRUE(contains(shown(share.train(), false), "<|im_start|>user\nQ"));
}

TEST_F(DataTest, TokenFilesAreReadAsTheyAre) {
  const Dataset data =
      open(write_ids<uint16_t>("a.bin", {5, 6, 7, 8, 9, 10, 11, 12}), {.length = 3});
  EXPECT_EQ(data.train().sample_count(), 2);
  EXPECT_EQ(sample_of(data.train(), 1).inputs, (Ids{8, 9, 10}));
  EXPECT_EQ(sample_of(data.train(), 1).targets, (Ids{9, 10, 11}));
  EXPECT_EQ(data.bytes(), 0);
}

TEST_F(DataTest, LargeVocabulariesHaveWideTokens) {
  const Dataset data =
      open(write_ids<uint32_t>("a.bin", {70000, 1, 99999}), {.length = 2, .vocabulary = 100000});
  EXPECT_EQ(sample_of(data.train(), 0).inputs, (Ids{70000, 1}));
  EXPECT_EQ(sample_of(data.train(), 0).targets, (Ids{1, 99999}));
}

TEST_F(DataTest, LlmcHeadersAreKnown) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 3;
  const uint16_t ids[] = {3, 2, 1};
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(ids), 6);
  const Dataset data = open(write("tokens.dat", bytes), {.length = 2});
  EXPECT_EQ(sample_of(data.train(), 0).inputs, (Ids{3, 2}));
  EXPECT_TRUE(contains(data.description(), "llm.c"));
  EXPECT_TRUE(
      contains(error_of(write("short.bin", bytes.substr(0, 1028)), {.length = 2}), "truncated"));
}

TEST_F(DataTest, ATokenBeyondTheVocabularyIsNamed) {
  const std::string message =
      error_of(write_ids<uint16_t>("a.bin", {5, 6, 300, 8}), {.length = 2, .vocabulary = 300});
  EXPECT_TRUE(contains(message, "a.bin: token 2 has id 300")) << message;
  const std::string text = error_of(write("b.txt", "abc"), {.length = 2, .vocabulary = 99});
  EXPECT_TRUE(contains(text, "token 2 has id 99")) << text;
}

TEST_F(DataTest, HeldOutSamplesAreTheLastOnes) {
  std::vector<uint16_t> ids;
  for (uint16_t k = 0; k <= 40; ++k) ids.push_back(k);
  const std::string path = write_ids("a.bin", ids);
  const Dataset counted = open(path, {.length = 4, .held_out_samples = 3});
  EXPECT_EQ(counted.train().sample_count(), 7);
  EXPECT_EQ(counted.held_out().sample_count(), 3);
  EXPECT_EQ(sample_of(counted.train(), 6).targets, (Ids{25, 26, 27, 28}));
  EXPECT_EQ(sample_of(counted.held_out(), 0).targets, (Ids{29, 30, 31, 32}));
  EXPECT_EQ(open(path, {.length = 4, .held_out_fraction = 0.25}).held_out().sample_count(), 2);
  EXPECT_EQ(open(path, {.length = 4, .held_out_fraction = 0.01}).held_out().sample_count(), 1);
  EXPECT_TRUE(contains(error_of(path, {.length = 4, .held_out_samples = 10}), "no sample is left"));
  EXPECT_TRUE(contains(error_of(path, {.length = 4, .held_out_fraction = 1.0}), "fraction"));
}

TEST_F(DataTest, ValidationFileIsTheHeldOutData) {
  write("train.jsonl", R"({"text":"aaaaaa"})");
  write("valid.jsonl", R"({"text":"bbbb"})");
  const Dataset data = open(folder_.path(), {.length = 2});
  EXPECT_EQ(shown(data.train(), false), "aaaaaa");
  EXPECT_EQ(shown(data.held_out(), false), "bbbb");
}

TEST_F(DataTest, ValidationIsOfEveryTokenOfItsFile) {
  write("train.jsonl", R"({"text":"aaaaaa"})");
  write("valid.jsonl", R"({"text":"bbb"})");
  const Dataset data = open(folder_.path(), {.length = 5});
  ASSERT_EQ(data.held_out().sample_count(), 1);
  EXPECT_EQ(data.held_out().target_count(0), 3);
}

TEST_F(DataTest, DataWithoutATargetIsRefused) {
  // 9 tokens, of which the last two are targets: behind the last whole sample.
  const std::string masked = write("masked.jsonl", R"({"prompt":"aaaaaaa","completion":"b"})");
  EXPECT_TRUE(contains(error_of(masked, {.length = 6}), "none of its samples has a target"));
  EXPECT_EQ(error_of(masked, {.length = 2}), "no error");
  write("train.jsonl", R"({"text":"aaaaaa"})");
  write("valid.jsonl", R"({"text":""})");
  EXPECT_TRUE(
      contains(error_of(folder_.path(), {.length = 2}), "valid.jsonl: there is nothing to learn"));
}

TEST_F(DataTest, FaultsAreNamedWithTheirPlace) {
  EXPECT_TRUE(
      contains(error_of("/proc/nonexistent", {.length = 2}), "/proc/nonexistent: No such file"));
  EXPECT_TRUE(contains(error_of(write("a.txt", ""), {.length = 2}), "empty"));
  EXPECT_TRUE(
      contains(error_of(write("b.txt", "abc"), {.length = 9}), "4 tokens, fewer than one sample"));
  EXPECT_TRUE(contains(error_of(write("c.txt", "ab\xff"), {.length = 2}), "byte 2 (0xff)"));
  EXPECT_TRUE(
      contains(error_of(write("d.bin", "abc"), {.length = 1}), "not a whole number of 16-bit"));
  EXPECT_TRUE(contains(error_of(write("e.jsonl", "{\"text\":\"a\"}\n{\"text\":7}"), {.length = 1}),
                       "e.jsonl:2: \"text\" is"));
  EXPECT_TRUE(
      contains(error_of(write("f.jsonl", "{\"text\":\"a\"}\n{\"prompt\":1,\"completion\":2}"),
                        {.length = 1}),
               "f.jsonl:2"));
  EXPECT_TRUE(
      contains(error_of(write("g.jsonl", "{\"txt\":\"a\"}"), {.length = 1}), "not a known record"));
  EXPECT_TRUE(contains(error_of(write("h.jsonl", "{\"text\":"), {.length = 1}),
                       "h.jsonl: line 1, column 9: it ends before the value is complete"));
  EXPECT_TRUE(contains(error_of(write("j.jsonl", ""), {.length = 1}), "has no record"));
  EXPECT_TRUE(contains(error_of("/dev/null", {.length = 1}), "neither a file nor a directory"));
  fs::create_directories(folder_ / "nothing");
  EXPECT_TRUE(contains(error_of(folder_ / "nothing", {.length = 1}), "no .txt or .md file"));
}

// A run leaves texts of its own where it is.
TEST_F(DataTest, ADirectoryIsItsTextsWithoutThoseOfRuns) {
  fs::create_directories(folder_ / "corpus/run/checkpoints");
  fs::create_directories(folder_ / "corpus/part");
  for (const char* name : {"corpus/a.txt", "corpus/part/b.md", "corpus/c.TXT", "corpus/d.jsonl",
                           "corpus/run/plan.txt", "corpus/run/run.json", "corpus/README"}) {
    write(name, "text");
  }
  const std::string corpus = folder_ / "corpus";
  const std::vector<std::string> texts = text::text_files_below(corpus);
  EXPECT_EQ(texts, (std::vector<std::string>{corpus + "/a.txt", corpus + "/part/b.md"}));
  EXPECT_EQ(text::left_out_of(corpus, texts),
            (std::vector<std::string>{corpus + "/c.TXT", corpus + "/d.jsonl"}));
}

// Each directory is read once, by its own path where it has one, however links go.
TEST_F(DataTest, LinksToDirectoriesAreFollowedOnce) {
  for (const char* name : {"corpus/part/a.txt", "other/b.txt", "other/below/c.txt", "run/log.txt",
                           "run/run.json", "apart/d.md"}) {
    write(name, "text");
  }
  const std::string corpus = folder_ / "corpus";
  const auto link = [&](const std::string& to, const std::string& at) {
    fs::create_directory_symlink(folder_ / to, folder_ / at);
  };
  link("corpus/part", "corpus/again");
  link("other", "corpus/linked");
  link("other", "corpus/linked_again");
  link("run", "corpus/run");
  link("nowhere", "corpus/broken");
  link("corpus", "corpus/part/loop");
  link("corpus", "other/back");
  link("apart", "other/below/more");
  EXPECT_EQ(text::text_files_below(corpus),
            (std::vector<std::string>{corpus + "/linked/b.txt", corpus + "/linked/below/c.txt",
                                      corpus + "/linked/below/more/d.md", corpus + "/part/a.txt"}));
}

TEST_F(DataTest, TextNeedsATokenizer) {
  const std::string path = write("a.txt", "abc");
  EXPECT_THROW(Dataset::open({path}, nullptr, {.length = 1, .vocabulary = 300}), Error);
}

// The text is larger than one read and one block of tokens; cuts do not show.
TEST_F(DataTest, LongTextsAreReadInBlocks) {
  std::string text;
  while (text.size() < (size_t{17} << 20)) text += "a line of words\n";
  const Dataset data = open(write("a.txt", text), {.length = 1000});
  EXPECT_EQ(data.token_count(), static_cast<int64_t>(text.size()) + 1);
  const int64_t middle = (int64_t{1} << 20) / 1000;  // spans two blocks of tokens
  const Sample sample = sample_of(data.train(), middle);
  for (size_t k = 0; k < 1000; ++k) {
    ASSERT_EQ(sample.inputs[k], text[static_cast<size_t>(middle) * 1000 + k]);
  }
}

}  // namespace
}  // namespace strata::data

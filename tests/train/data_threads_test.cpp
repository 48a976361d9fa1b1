// SPDX-License-Identifier: Apache-2.0
// Several threads make the tokens, masks, starts, report, warnings and errors that one makes: of
// lines of all sizes, blank ones, chats, texts and many files; and how many there are depends on
// the memory that is left.
#include <filesystem>
#include <set>

#include "engine/data/files_reader.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

using config::SampleLayout;

class DataThreads : public DataTest {
 protected:
  static DataOptions with(DataOptions options, int64_t threads) {
    options.threads = {.count_max = threads, .text_bytes = 1};
    return options;
  }

  // All that opening the data gives, or the error.
  std::string outcome(const std::vector<std::string>& paths, const DataOptions& options) const {
    const test::LogCapture captured;
    try {
      const Dataset data = open(paths, options);
      return told_of(data) + data.description() + captured.text();
    } catch (const Error& error) {
      return fmt::format("{} {}\n{}", static_cast<int>(error.code()), error.what(),
                         captured.text());
    }
  }

  // Returns what one thread gives.
  std::string expect_equal(const std::vector<std::string>& paths, const DataOptions& options) {
    const std::string one = outcome(paths, with(options, 1));
    for (const int64_t threads : {2, 3, 7}) {
      EXPECT_EQ(outcome(paths, with(options, threads)), one) << threads << " threads";
    }
    return one;
  }

  static std::string letters(size_t count, size_t seed) {
    std::string text(count, ' ');
    for (size_t k = 0; k < count; ++k) {
      const size_t letter = (k * k + seed * 7 + k / 5) % 27;
      if (letter < 26) text[k] = static_cast<char>('a' + letter);
    }
    return text;
  }

  static std::string prompt(size_t prompt_bytes, size_t completion_bytes) {
    return fmt::format(R"({{"prompt":"{}","completion":"{}"}})",
                       letters(prompt_bytes, completion_bytes),
                       letters(completion_bytes, prompt_bytes));
  }

  // About 1.3 MB in lines of 30 bytes to 6 kB, some of them blank, with both kinds of line ends.
  static std::string prompts(size_t count = 400) {
    std::string lines = "\n \t\r\n";
    for (size_t k = 0; k < count; ++k) {
      lines += prompt(k * k % 3001, k * 37 % 2999) + (k % 3 == 0 ? "\r\n" : "\n");
      if (k % 11 == 0) lines += "\n  \r\n";
    }
    return lines;
  }

  static std::string chat(size_t turns, size_t bytes) {
    std::string messages;
    for (size_t k = 0; k < turns; ++k) {
      messages += fmt::format(R"({}{{"role":"{}","content":"{}"}})", k == 0 ? "" : ",",
                              k % 2 == 0 ? "user" : "assistant", letters(bytes, k));
    }
    return fmt::format(R"({{"messages":[{}]}})", messages);
  }
};

TEST_F(DataThreads, RecordsAreThoseOfOneThread) {
  const std::string path = write("a.jsonl", prompts());
  for (const SampleLayout layout :
       {SampleLayout::kStream, SampleLayout::kRecord, SampleLayout::kPacked}) {
    const std::string one = expect_equal({path}, {.length = 700, .samples = layout});
    EXPECT_TRUE(contains(one, "400 records")) << one.substr(one.size() - 1000);
    expect_equal({path}, {.length = 40, .held_out_fraction = 0.1, .samples = layout});
  }
  expect_equal({path}, {.length = 100,
                        .samples = SampleLayout::kPacked,
                        .train_on = config::TrainOn::kEverything,
                        .train_on_end = false});
}

// Records that are read alone, and whose tokens are too many for a batch.
TEST_F(DataThreads, LongRecordsAreThoseOfOneThread) {
  const std::string path =
      write("a.jsonl", prompts(150) + prompt(1'200'000, 30) + "\n" + prompt(2, 700'000) + "\r\n" +
                           prompts(150) + prompt(400'000, 400'000));
  expect_equal({path}, {.length = 5000});
  expect_equal({path}, {.length = 300, .samples = SampleLayout::kPacked});
}

TEST_F(DataThreads, ArraysAreThoseOfOneThread) {
  std::string items = "[";
  for (size_t k = 0; k < 300; ++k) items += (k == 0 ? "\n" : ",\n\n") + prompt(k * 11, 3000 - k);
  expect_equal({write("a.json", items + "]")}, {.length = 100});
  EXPECT_TRUE(contains(expect_equal({write("b.json", items)}, {.length = 100}), "does not end"));
  EXPECT_TRUE(contains(expect_equal({write("c.json", items + "]x")}, {.length = 100}), "follows"));
}

TEST_F(DataThreads, ChatsAreThoseOfOneThread) {
  std::string lines;
  for (size_t k = 0; k < 200; ++k) lines += chat(2 + k % 9, 1 + k * k % 1500) + "\n";
  // Its answers change the text before them, so each becomes a text of its own: this chat has far
  // more of these than a batch holds.
  const std::string repeats = lines + chat(120, 300) + "\n" + lines;
  const std::string path = write("a.jsonl", repeats);
  DataOptions options = {.length = 400, .samples = SampleLayout::kPacked};
  expect_equal({path}, options);
  options.chat_template = write("last.jinja",
                                "{% for m in messages %}<{{ m.role }}>"
                                "{{ m.content if loop.last else m.content[:50] }};{% endfor %}"
                                "{% if add_generation_prompt %}<assistant>{% endif %}");
  expect_equal({path}, options);
  options.chat_template = write("bad.jinja", "{% for m in messages %}{{ m.missing.name }}");
  EXPECT_TRUE(contains(expect_equal({path}, options), "bad.jinja"));
}

TEST_F(DataThreads, TextsAreThoseOfOneThread) {
  std::vector<std::string> paths;
  for (size_t k = 0; k < 40; ++k) {
    paths.push_back(write(fmt::format("{}.txt", k), letters(k * k * 70, k)));
  }
  paths.push_back(write("long.txt", letters(1'500'000, 3)));
  paths.push_back(write("records.jsonl", prompts(100)));
  paths.push_back(write("more.txt", "the end\n"));
  expect_equal(paths, {.length = 50});
  paths.push_back(write("damaged.txt", letters(100'000, 1) + "\xff"));
  EXPECT_TRUE(contains(expect_equal(paths, {.length = 50}), "damaged.txt: byte 100000"));
}

TEST_F(DataThreads, TextsOfSeveralBlocksAreThoseOfOneThread) {
  std::string text;
  while (text.size() < (17 << 20)) text += letters(5000, text.size()) + "\n";
  const std::string path = write("a.txt", text);
  EXPECT_EQ(outcome({path}, with({.length = 1000}, 2)), outcome({path}, with({.length = 1000}, 1)));
}

TEST_F(DataThreads, ManyFilesAreThoseOfOneThread) {
  std::vector<std::string> paths;
  const auto expect_error = [&](const std::string& part) {
    const std::string one = expect_equal(paths, {.length = 90});
  };
  for (size_t k = 0; k < 60; ++k) {
    paths.push_back(write(fmt::format("{}.jsonl", k), prompts(2 + k % 7)));
  }
  expect_equal(paths, {.length = 90, .samples = SampleLayout::kRecord});
  write("30.jsonl", prompt(5, 0) + "\n" + prompt(7, 0));
  write("31.jsonl", "{");
  expect_error("30.jsonl: there is nothing to learn");
  write("29.jsonl", "\n\n");
  expect_error("29.jsonl: it has no record");
  paths[28] = folder_ / "gone.jsonl";
  expect_error("gone.jsonl");
}

TEST_F(DataThreads, WarningsAreThoseOfOneThread) {
  std::string lines = prompt(9, 9) + "\n";
  for (size_t k = 0; k < 3000; ++k) lines += prompt(k % 90, k % 5) + "\n";
  const std::string one =
      expect_equal({write("a.jsonl", lines)}, {.length = 60, .samples = SampleLayout::kRecord});
  EXPECT_TRUE(contains(one, "600 of 3001 records have an empty completion (lines 2, 7, 12, 17, "))
      << one.substr(one.size() - 1000);
  EXPECT_TRUE(contains(one, "have nothing to learn in the first 60 tokens"));
  EXPECT_TRUE(contains(expect_equal({folder_ / "a.jsonl"}, {.length = 100'000}), "100000"));
}

TEST_F(DataThreads, TheFirstErrorIsThatOfOneThread) {
  const std::string good = prompts(300);
  const auto lines = std::count(good.begin(), good.end(), '\n');
  const auto expect_error = [&](const std::string& bad, const std::string& part) {
    const std::string path = write("a.jsonl", good + bad + "\n" + good + "{\"later\": 1}\n" + good);
    const std::string one = expect_equal({path}, {.length = 50});
    const bool is_syntax = part.starts_with(" column");
    const char* place = is_syntax ? "a.jsonl: line {}," : "a.jsonl:{}:";
    EXPECT_TRUE(contains(one, fmt::format(fmt::runtime(place), lines + 1) + part)) << one;
  };
  expect_error("{\"prompt\": \"", " column 13: a string has no closing quote");
  expect_error("{\"prompt\": \"a\"}", " not a known record");
  expect_error("{\"prompt\": \"\xff\", \"completion\": \"b\"}", " column 13: a byte is not UTF-8");
  expect_error("[]", "");
  // A line that cannot be read, behind a record that cannot be used.
  const std::string path = write("b.jsonl", good + "{}\n" + std::string(65 << 20, 'x'));
  EXPECT_TRUE(contains(expect_equal({path}, {.length = 50}), fmt::format("b.jsonl:{}", lines + 1)));
}

TEST_F(DataThreads, ErrorsOfTokensAreThoseOfOneThread) {
  const std::string path = write("a.jsonl", prompts(300) + prompt(10, 10) + "\n{");
  DataOptions options = {.length = 50, .vocabulary = 110};
  const std::string one = expect_equal({path}, options);
  EXPECT_TRUE(contains(one, "but the vocabulary has 110 entries")) << one;
}

TEST_F(DataThreads, LittleMemoryIsUsedAsByOneThread) {
  const std::string path = write("a.jsonl", prompts(400) + prompt(1'500'000, 3) + "\n{");
  std::set<std::string> outcomes;
  for (const int64_t mib : {1, 2, 5, 9, 80, 400}) {
    outcomes.insert(expect_equal({path}, {.length = 50, .room_bytes = mib << 20}));
  }
  EXPECT_GE(outcomes.size(), 3u);  // too little for the tokens, for the line, and enough
}

// 59 MiB were named where 72 were needed.
TEST_F(DataThreads, WhatDataMayTakeIsTheSumOfWhatEachPartMay) {
  const std::string one = write("a.jsonl", prompts());
  const std::string other = write("b.jsonl", prompts(300));
  DataOptions options = {.length = 50, .vocabulary = 300};
  options.cache = {.directory = folder_ / "cache", .memory_text_bytes = 1'500'000};
  const int64_t kept = Dataset::most_bytes({one, other}, options);  // together they are large
  const int64_t apart = Dataset::most_bytes({one + ":1", other + ":1"}, options);
  EXPECT_EQ(kept, Dataset::least_bytes(300));
  EXPECT_GE(apart, open({one + ":1", other + ":1"}, options).bytes());
  EXPECT_GT(apart, kept);
  options.held_out_data = {other};
  EXPECT_GE(Dataset::most_bytes({one}, options), open({one}, options).bytes());
  EXPECT_GT(Dataset::most_bytes({one}, options), Dataset::most_bytes({other}, options) / 2 + kept);
}

TEST_F(DataThreads, KeptTokensHaveTheSameBytes) {
  const std::string path = write("a.jsonl", prompts());
  const auto kept_by = [&](int64_t threads) {
    DataOptions options = with({.length = 3000, .samples = SampleLayout::kPacked}, threads);
    const std::string cache = folder_ / fmt::format("cache{}", threads);
    options.cache = {.directory = cache, .is_given = true, .memory_text_bytes = 0};
    open(path, options);
    std::string bytes;
    for (const char* name : {"ids", "masks", "starts", "order", "rows", "about.json"}) {
      for (const auto& entry : fs::directory_iterator(cache)) {
        const fs::path file = entry.path() / name;
        if (entry.is_directory())
          bytes += file.lexically_relative(cache).string() + test::read_text(file);
      }
    }
    return bytes;
  };
  const std::string one = kept_by(1);
  EXPECT_GT(one.size(), 100'000u);
  EXPECT_EQ(kept_by(2), one);
  EXPECT_EQ(kept_by(5), one);
}

TEST_F(DataThreads, AreAsManyAsMemoryAndDataAllow) {
  const std::string path = write("a.jsonl", std::string(20 << 20, '\n'));
  ReadData data;
  data.tokens = std::make_unique<TokenSequence>("a", 300);
  ReadOptions options = {.vocabulary = 300};
  options.threads.count_max = 6;
  const ReadPlan all = plan_reading({path}, options, data);
  EXPECT_EQ(all.threads, 6u);
  EXPECT_GE(all.batches, all.threads);
  size_t before = 0;
  for (int64_t mib = 1; mib < 400; ++mib) {
    options.room_bytes = mib << 20;
    const ReadPlan plan = plan_reading({path}, options, data);
    EXPECT_NE(plan.threads, 1u);
    EXPECT_GE(plan.threads, before);
    if (plan.threads > 0) {
      // 3 bytes for each of the text.
      EXPECT_LE(static_cast<int64_t>(plan.threads) * plan.thread_bytes + (60 << 20),
                options.room_bytes);
      EXPECT_GE(plan.thread_bytes, text::TokenizerCache::kBytesMax + plan.limits.bytes());
    }
    before = plan.threads;
  }
  EXPECT_EQ(before, 6u);
  options.room_bytes = 0;
  EXPECT_EQ(plan_reading({write("b.jsonl", std::string(3 << 20, '\n'))}, options, data).threads,
            0u);
  options.threads.count_max = 1;
  EXPECT_EQ(plan_reading({path}, options, data).threads, 0u);
}

}  // namespace
}  // namespace strata::data

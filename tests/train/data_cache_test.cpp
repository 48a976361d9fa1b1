// SPDX-License-Identifier: Apache-2.0
// Tokens that are kept on disk are those that would be held in memory, bit by bit: with records,
// packed or not, masks, mixtures, several files, and held-out data. What is damaged or of other
// data is made again.
#include "engine/data/data_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "engine/data/data_key.h"
#include "tests/support/small_file_system.h"
#include "tests/train/data_fixture.h"
#include "tests/train/file_calls.h"

namespace strata::data {
namespace {

using config::SampleLayout;

class DataCaches : public DataTest {
 protected:
  DataOptions cached(DataOptions options) const {
    options.cache = {
        .directory = cache_, .is_given = true, .made_by = "test", .memory_text_bytes = 0};
    return options;
  }

  // The description without where tokens are kept.
  static std::string report_of(const Dataset& data) {
    std::string report = data.description();
    for (size_t at; (at = report.find("\n         tokens kept in")) != std::string::npos;) {
      size_t end = report.find('\n', at + 1);
      while (end != std::string::npos && report.substr(end - 7, 7) != "on disk") {
        end = report.find('\n', end + 1);
      }
      report.erase(at, end - at);
    }
    return report;
  }

  void expect_equal(const std::vector<std::string>& paths, const DataOptions& options) {
    const Dataset memory = open(paths, options);
    for (const char* which : {"made", "read"}) {
      const Dataset kept = open(paths, cached(options));
      EXPECT_EQ(told_of(kept), told_of(memory)) << which << " " << paths.front();
      EXPECT_EQ(report_of(kept), report_of(memory)) << which;
      EXPECT_TRUE(contains(unwrapped(kept.description()), "tokens kept in " + cache_))
          << kept.description();
    }
  }

  // The folders of tokens, and what was left beside them.
  std::vector<std::string> kept(const std::string& extension = "") const {
    std::vector<std::string> paths;
    if (!fs::exists(cache_)) return paths;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().extension() == extension) paths.push_back(entry.path().string());
    }
    return paths;
  }

  std::string prompts(int count, int seed = 1) const {
    std::string lines;
    for (int k = 0; k < count; ++k) {
      lines += fmt::format(
          "{{\"prompt\":\"{}\",\"completion\":\"{}\"}}\n",
          std::string(static_cast<size_t>(k * seed % 17), 'p'),
          std::string(static_cast<size_t>(k * 7 % 23), static_cast<char>('a' + k % 26)));
    }
    return lines;
  }
  std::string write_prompts(const std::string& name, int count, int seed = 1) const {
    return write(name, prompts(count, seed));
  }

  const std::string cache_ = folder_ / "cache";
};

TEST_F(DataCaches, StreamsAreThoseOfMemory) {
  std::string text;
  for (int k = 0; k < 4000; ++k) text += fmt::format("line {}\n", k * k);
  expect_equal({write("a.txt", text)}, {.length = 64});
  expect_equal({folder_ / "a.txt", write("b.txt", "and more " + text)},
               {.length = 50, .held_out_fraction = 0.1});
  expect_equal({write_prompts("c.jsonl", 500), folder_ / "a.txt"}, {.length = 33});
}

TEST_F(DataCaches, RecordsAreThoseOfMemory) {
  const std::string path = write_prompts("a.jsonl", 700);
  const std::string chats =
      write("b.jsonl",
            R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})");
  for (const SampleLayout layout : {SampleLayout::kRecord, SampleLayout::kPacked}) {
    expect_equal({path}, {.length = 24, .samples = layout});
    expect_equal({path}, {.length = 12, .held_out_samples = 5, .samples = layout});
    expect_equal({chats}, {.length = 80, .samples = layout});
    expect_equal({path, write_prompts("c.jsonl", 90, 3)},
                 {.length = 24, .samples = layout, .train_on = config::TrainOn::kEverything});
  }
}

TEST_F(DataCaches, MixturesAndHeldOutFilesAreThoseOfMemory) {
  const std::string one = write_prompts("a.jsonl", 300);
  const std::string other = write_prompts("b.jsonl", 60, 5);
  const std::string held = write_prompts("c.jsonl", 40, 2);
  for (const SampleLayout layout :
       {SampleLayout::kStream, SampleLayout::kRecord, SampleLayout::kPacked}) {
    expect_equal({one + ":0.7", other + ":0.3"},
                 {.length = 20, .held_out_data = {held}, .samples = layout});
  }
}

// Long runs of records without masks, and a mask far behind them.
TEST_F(DataCaches, MasksBeyondABlockAreThoseOfMemory) {
  std::string lines;
  for (int k = 0; k < 20'000; ++k)
    lines += R"({"text":"12345678901234567890123456789012345"})"
             "\n";
  const std::string texts = write("a.jsonl", lines);
  expect_equal({texts, write_prompts("b.jsonl", 50)}, {.length = 100});
  expect_equal({write_prompts("c.jsonl", 20'000)}, {.length = 100});
}

TEST_F(DataCaches, WarningsComeAgain) {
  const std::string path = write("a.jsonl", prompts(30) + R"({"prompt":"a","completion":""})");
  const std::string said = warnings_of(path, {.length = 8});
  EXPECT_TRUE(contains(said, "empty completion")) << said;
  EXPECT_EQ(warnings_of(path, cached({.length = 8})), said);
  EXPECT_EQ(warnings_of(path, cached({.length = 8})), said);
}

TEST_F(DataCaches, MakingTokensOfMuchTextIsAnnouncedOnce) {
  const std::string word = "word ";
  std::string text;
  while (text.size() <= static_cast<size_t>(kTextBytesInMemory)) text += word;
  const std::string path = write("much.txt", text);
  const DataOptions options = cached({.length = 8});
  EXPECT_TRUE(
      contains(warnings_of(path, options), "making tokens of 8 MiB of text, which are kept"));
  EXPECT_EQ(warnings_of(path, options), "");
  EXPECT_EQ(warnings_of(write("little.txt", "a few words here"), {.length = 2}), "");
}

TEST_F(DataCaches, WhatIsDamagedIsMadeAgain) {
  const std::string path = write_prompts("a.jsonl", 300);
  const DataOptions options = cached({.length = 24, .samples = SampleLayout::kPacked});
  const std::string told = told_of(open(path, options));
  ASSERT_EQ(kept().size(), 1u);
  const std::string folder = kept().front();
  for (const char* name : {"ids", "masks", "starts", "order", "rows", "about.json"}) {
    const std::string file = folder + "/" + name;
    const auto damage = [&](const std::string& how, const std::function<void()>& change) {
      change();
      EXPECT_TRUE(contains(warnings_of(path, options), "made again")) << name << how;
      EXPECT_FALSE(contains(warnings_of(path, options), "made again")) << name << how;
      EXPECT_EQ(told_of(open(path, options)), told) << name << how;
    };
    damage(" with another byte", [&] {
      std::string bytes = test::read_text(file);
      bytes[bytes.size() / 2] ^= 4;
      test::write_text(file, bytes);
    });
    damage(" cut", [&] { fs::resize_file(file, fs::file_size(file) - 1); });
    damage(" gone", [&] { fs::remove(file); });
  }
}

TEST_F(DataCaches, OtherDataHasOtherTokens) {
  const std::string path = write("a.jsonl", prompts(100));
  const DataOptions options = {.length = 24};
  open(path, cached(options));
  struct stat before {};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  // Of the same size, with the old time of modification.
  std::string text = prompts(100);
  std::replace(text.begin(), text.end(), 'b', 'z');
  test::write_text(path, text);
  const struct timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(told_of(open(path, cached(options))), told_of(open(path, options)));
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(DataCaches, WhatDecidesTokensIsPartOfTheKey) {
  const std::string path = write_prompts("a.jsonl", 100);
  size_t count = 0;
  const auto is_new = [&](const DataOptions& options) {
    open(path, options);
    const bool grew = kept().size() == count + 1;
    count = kept().size();
    return grew;
  };
  DataOptions options = cached({.length = 24});
  EXPECT_TRUE(is_new(options));
  EXPECT_FALSE(is_new(options));
  options.held_out_fraction = 0.5;  // cut from the same tokens
  EXPECT_FALSE(is_new(options));
  options.length = 25;
  EXPECT_TRUE(is_new(options));
  options.samples = SampleLayout::kRecord;
  EXPECT_TRUE(is_new(options));
  options.train_on = config::TrainOn::kEverything;
  EXPECT_TRUE(is_new(options));
  options.train_on_end = false;
  EXPECT_TRUE(is_new(options));
  options.columns = {"prompt=prompt"};
  EXPECT_TRUE(is_new(options));
  options.vocabulary = 70'000;
  EXPECT_TRUE(is_new(options));
  options.chat_template = write("one.jinja", "{{ messages }}");
  EXPECT_TRUE(is_new(options));
  write("one.jinja", "{{ messages  }}");
  EXPECT_TRUE(is_new(options));
  options.cache.made_by = "another tokenizer";
  EXPECT_TRUE(is_new(options));
}

TEST_F(DataCaches, TheTokenizersFilesAreItsKey) {
  write("model/tokenizer.json", "{}");
  write("model/model.safetensors", "weights");
  const std::string key = key_of_tokenizer(folder_ / "model");
  write("model/model.safetensors", "other weights");
  EXPECT_EQ(key_of_tokenizer(folder_ / "model"), key);
  write("model/additional_chat_templates/tools.jinja", "x");
  const std::string with_template = key_of_tokenizer(folder_ / "model");
  EXPECT_NE(with_template, key);
  write("model/tokenizer.json", "{ }");
  EXPECT_NE(key_of_tokenizer(folder_ / "model"), with_template);
}

TEST_F(DataCaches, SmallTextsStayInMemory) {
  DataOptions options = cached({.length = 24});
  options.cache.memory_text_bytes = kTextBytesInMemory;
  const Dataset data = open(write_prompts("a.jsonl", 100), options);
  EXPECT_GT(data.bytes(), 0);
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(DataCaches, TokensInFilesNeedLittleRoom) {
  const std::string text = words(6 << 20);
  const std::string path = write("a.txt", text);
  DataOptions options = {.length = 24, .room_bytes = 8 << 20};
  EXPECT_THROW(open(path, options), Error);
  const Dataset data = open(path, cached(options));
  EXPECT_EQ(data.token_count(), std::ssize(text) + 1);
  EXPECT_EQ(data.bytes(), 1 << 20);
}

TEST_F(DataCaches, ADiskWithoutRoomIsRefused) {
  const std::string path = write("a.txt", std::string(4 << 20, 'a'));
  fs::create_directory(cache_);
  const auto refusal = [&] {
    try {
      open(path, cached({.length = 24}));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  {
    const auto disk = test::SmallFileSystem::in_memory(cache_, "1m");
    if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
    EXPECT_TRUE(contains(refusal(),
                         "are needed for 4 MiB of text, and 1 MiB are free (free some "
                         "space, or give another disk by --data-cache DIR)"))
        << refusal();
  }
  // Texts that make more tokens than most: the disk fills while they are written.
  const auto disk = test::SmallFileSystem::in_memory(cache_, "4m");
  EXPECT_TRUE(contains(refusal(), "ids: its disk has only ")) << refusal();
  EXPECT_TRUE(kept().empty());
  EXPECT_TRUE(kept(".part").empty());
}

TEST_F(DataCaches, AFullDiskThatNobodyGaveEndsNoRun) {
  const std::string path = write("a.txt", words(4 << 20));
  fs::create_directory(cache_);
  const auto disk = test::SmallFileSystem::in_memory(cache_, "4m");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  DataOptions options = cached({.length = 24});
  options.cache.is_given = false;
  const std::string said = warnings_of(path, options);
  EXPECT_TRUE(contains(said, "ids: its disk has only ")) << said;
  EXPECT_TRUE(contains(said, "held in memory now")) << said;
  EXPECT_TRUE(kept(".part").empty());
  EXPECT_EQ(told_of(open(path, options)), told_of(open(path, {.length = 24})));
  options.room_bytes = 6 << 20;
  const auto refusal = [&] {
    try {
      open(path, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      return std::string(error.what());
    }
    return std::string("no error");
  }();
  EXPECT_TRUE(contains(refusal, "ids: its disk has only ")) << refusal;
  EXPECT_TRUE(contains(refusal, "raise --host-memory")) << refusal;
}

// A quota, for instance, may show when a file is synced: ids, masks, about.json, and two folders.
TEST_F(DataCaches, AFullDiskThatShowsLateEndsNoRun) {
  const std::string path = write("a.txt", words(1000));
  const std::string told = told_of(open(path, {.length = 24}));
  DataOptions options = cached({.length = 24});
  for (const int last : {1, 2, 3, 4, 5}) {
    for (const int cause : {ENOSPC, EDQUOT, EIO}) {
      SCOPED_TRACE(fmt::format("sync {} fails: {}", last, strerror(cause)));
      fs::remove_all(cache_);
      int synced = 0;
      const test::FileCalls calls(
          [&](std::string_view call) { return call == "fsync" && ++synced == last ? cause : 0; });
      options.cache.is_given = false;
      if (cause == EIO) {
        EXPECT_THROW(open(path, options), Error);
        continue;
      }
      const test::LogCapture captured;
      EXPECT_EQ(told_of(open(path, options)), told);
      EXPECT_TRUE(contains(captured.text(), "held in memory now")) << captured.text();
      EXPECT_TRUE(kept(".part").empty());
      fs::remove_all(cache_);
      options.cache.is_given = true;
      synced = 0;
      try {
        open(path, options);
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit) << error.what();
        EXPECT_TRUE(contains(error.what(), "--data-cache DIR")) << error.what();
      }
    }
  }
}

// The root, the lock, the folder, ids and masks have an inode, and about.json has none.
TEST_F(DataCaches, ADiskWithoutRoomForAFileEndsNoRun) {
  const std::string path = write("a.txt", words(1000));
  fs::create_directory(cache_);
  DataOptions options = cached({.length = 24});
  options.cache.is_given = false;
  for (const char* size : {"4m,nr_inodes=4", "4m,nr_inodes=5"}) {
    const auto disk = test::SmallFileSystem::in_memory(cache_, size);
    if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
    const std::string said = warnings_of(path, options);
    EXPECT_TRUE(contains(said, "No space left on device")) << said;
    EXPECT_TRUE(contains(said, "held in memory now")) << said;
    EXPECT_TRUE(kept(".part").empty());
  }
}

// A folder on which something is mounted cannot be removed, as one of another user.
TEST_F(DataCaches, DamageThatCannotBeRemovedIsFoundAtOnce) {
  const std::string path = write("a.txt", words(1000));
  DataOptions options = cached({.length = 24});
  const std::string told = told_of(open(path, options));
  const auto disk = test::SmallFileSystem::in_memory(kept().front(), "1m");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  EXPECT_TRUE(contains(error_of(path, options), "open token cache: " + kept().front()))
      << error_of(path, options);
  options.cache.is_given = false;
  const test::LogCapture captured;
  EXPECT_EQ(told_of(open(path, options)), told);
  const std::string said = captured.text();
  EXPECT_TRUE(contains(said, "held in memory now")) << said;
  EXPECT_TRUE(contains(said, "are damaged")) << said;
  EXPECT_EQ(said.find("are damaged"), said.rfind("are damaged")) << said;
}

// What is remembered of files does not grow with their number.
TEST_F(DataCaches, ManyFilesHaveASmallKey) {
  std::vector<std::string> paths;
  for (int k = 0; k < 200; ++k)
    paths.push_back(write(fmt::format("{}.jsonl", k), R"({"text":"abc"})"));
  open(paths, cached({.length = 24}));
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_LT(fs::file_size(kept().front() + "/about.json"), 4096u);
  std::swap(paths[7], paths[8]);
  open(paths, cached({.length = 24}));
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(DataCaches, OnlyADirectoryThatIsGivenMustBeUsable) {
  write("file", "");
  const std::string path = write_prompts("a.jsonl", 100);
  DataOptions options = cached({.length = 24});
  options.cache.directory = folder_ / "file/below";
  EXPECT_TRUE(contains(error_of(path, options), "--data-cache DIR")) << error_of(path, options);
  options.cache.is_given = false;
  EXPECT_TRUE(contains(warnings_of(path, options), "held in memory now"));
  EXPECT_EQ(told_of(open(path, options)), told_of(open(path, {.length = 24})));
}

}  // namespace
}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
// Weights that were read ahead past the page cache are those of the files, in whatever order they
// are asked for, and what is wrong with a file is said by the call that needs its bytes.
#include "engine/model_files/read_ahead.h"
#include "engine/base/units.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "engine/base/error.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "tests/model/weight_parts.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStep = 100'003;
constexpr int64_t kBuffer = 8 * kMiB;

// The first file of a directory, its tensors moved by `bytes`: longer by as much.
void move_tensors(const std::string& path, int64_t bytes) {
  const std::string text = test::read_text(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  const uint64_t longer = length + static_cast<uint64_t>(bytes);
  std::string moved(reinterpret_cast<const char*>(&longer), sizeof longer);
  moved += text.substr(8, length) + std::string(static_cast<size_t>(bytes), ' ');
  test::write_text(path, moved + text.substr(8 + length));
}

std::vector<float> read_part(const ModelDirectory& directory, const Part& part,
                             ReadAhead* ahead = nullptr) {
  std::vector<float> values(static_cast<size_t>(part.count));
  directory.read_parameter(*part.parameter, part.first, part.count, {.master = values.data()},
                           ahead);
  return values;
}

void expect_part(const Part& part, ReadAhead& ahead) {
  const ReadAhead::Part one = {part.parameter, part.first, part.count};
  ahead.expect({&one, 1});
}

// Reads the parts both ways and compares bits; each is expected some parts before it is read.
void expect_equal(const ModelDirectory& directory, const std::vector<Part>& parts,
                  ReadAhead& ahead) {
  constexpr size_t kAhead = 5;
  size_t expected = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    for (; expected < std::min(k + kAhead, parts.size()); ++expected) {
      expect_part(parts[expected], ahead);
    }
    const Part& part = parts[k];
    const auto wanted = read_part(directory, part);
    const auto found = read_part(directory, part, &ahead);
    ASSERT_EQ(std::memcmp(wanted.data(), found.data(), wanted.size() * sizeof(float)), 0)
        << part.parameter->name << " from " << part.first;
    ahead.finish();
  }
}

class ReadAheadTest : public ::testing::Test {
 protected:
  void SetUp() override { open(DType::kBF16); }
  void open(DType dtype) {
    fs::remove_all(home_ / "m");
    init_model(some_megabytes(), 5,
               {.path = home_ / "m", .dtype = dtype, .shard_bytes = 6'000'000});
    directory_.emplace(ModelDirectory::open(home_ / "m"));
  }
  std::vector<std::string> shards() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(home_ / "m"))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
  }
  bool has_direct() const { return File::open_to_read(shards().front()).open_direct().is_open(); }

  void leave_page_cache() const {
    for (const std::string& path : shards()) {
      const File file = File::open_to_read(path);
      file.sync();
      ASSERT_EQ(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED), 0);
    }
  }
  // How many pages of the files are in the page cache.
  size_t pages_in_cache() const {
    size_t count = 0;
    for (const std::string& path : shards()) {
      const File file = File::open_to_read(path);
      const auto bytes = static_cast<size_t>(file.size());
      void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
      std::vector<unsigned char> pages(bytes / kPageBytes + 1);
      EXPECT_EQ(::mincore(data, bytes, pages.data()), 0);
      ::munmap(data, bytes);
      count += static_cast<size_t>(std::ranges::count_if(pages, [](int page) { return page & 1; }));
    }
    return count;
  }

  test::TemporaryDirectory home_;
  std::optional<ModelDirectory> directory_;
};

TEST_F(ReadAheadTest, TheOrderOfLoadingIsReadPastThePageCacheAndItsBufferIsFreed) {
  if (!has_direct()) GTEST_SKIP() << "no O_DIRECT in " << home_.path();
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    open(dtype);
    const std::vector<Part> parts = parts_of(directory_->spec(), kStep);
    ReadAhead ahead(*directory_, kBuffer);
    EXPECT_FALSE(ahead.has_buffer());
    expect_part(parts[0], ahead);
    EXPECT_TRUE(ahead.has_buffer());
    ahead.forget();
    expect_equal(*directory_, parts, ahead);
    EXPECT_FALSE(ahead.has_buffer());
  }
}

TEST_F(ReadAheadTest, TensorsMayStartAtAnyByte) {
  for (const int64_t bytes : {1, 2, 511, 512, 4093}) {
    open(DType::kBF16);
    for (const std::string& file : shards()) move_tensors(file, bytes);
    directory_.emplace(ModelDirectory::open(home_ / "m"));
    ReadAhead ahead(*directory_, kBuffer);
    expect_equal(*directory_, parts_of(directory_->spec(), kStep), ahead);
  }
}

TEST_F(ReadAheadTest, AnyOrderAnyRangesAndAnySkipsGiveTheSameBytes) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    std::vector<Part> parts = parts_of(directory_->spec(), 1 + random() % 300'000);
    const auto skipped = [&](const Part&) { return random() % 4 == 0; };
    parts.erase(std::remove_if(parts.begin(), parts.end(), skipped), parts.end());
    if (seed % 3 == 0) std::shuffle(parts.begin(), parts.end(), random);
    if (seed % 3 == 1)
      std::reverse(parts.begin() + static_cast<int64_t>(parts.size() / 2), parts.end());
    ReadAhead ahead(*directory_, kBuffer);
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const Part& part : parts) {  // in another order than they are read
      if (random() % 8 == 0) ahead.forget();
      if (random() % 2 == 0) expect_part(part, ahead);
    }
    if (seed % 2 == 0) ahead.forget();
    expect_equal(*directory_, parts, ahead);
  }
}

// Passes that go back as a backward does, and again forward as the next step, are read in the same
// way: nothing of the files comes into the page cache.
TEST_F(ReadAheadTest, EveryLaterPassIsReadPastThePageCache) {
  if (!has_direct()) GTEST_SKIP() << "no O_DIRECT in " << home_.path();
  const std::vector<Part> parts = parts_of(directory_->spec(), kStep);
  std::vector<Part> passes(parts);
  passes.insert(passes.end(), parts.rbegin(), parts.rend());
  passes.insert(passes.end(), parts.begin(), parts.end());
  leave_page_cache();
  ReadAhead ahead(*directory_, kBuffer);
  size_t expected = 0;
  for (size_t k = 0; k < passes.size(); ++k) {
    for (; expected < std::min(k + 9, passes.size()); ++expected) {
      expect_part(passes[expected], ahead);
    }
    ASSERT_FALSE(read_part(*directory_, passes[k], &ahead).empty());
    ahead.finish();
    ASSERT_LE(ahead.waiting(), 9u);
  }
  EXPECT_LT(pages_in_cache(), shards().size() * 3)
      << "of each file its end, which is no whole page";
}

// Groups that are not read, or read twice, hold up no others.
TEST_F(ReadAheadTest, WhatIsExpectedAndNotReadIsDropped) {
  const std::vector<Part> parts = parts_of(directory_->spec(), kStep);
  ReadAhead ahead(*directory_, kMiB);
  leave_page_cache();
  for (size_t k = 0; k < 5 * parts.size(); ++k) {
    if (k == 0) {
      for (size_t i = 0; i < 9; ++i) expect_part(parts[i], ahead);
    } else {
      expect_part(parts[(k + 8) % parts.size()], ahead);
    }
    if (k % 5 == 0) {
      ASSERT_FALSE(read_part(*directory_, parts[k % parts.size()], &ahead).empty());
    }
    ahead.finish();
    ASSERT_LE(ahead.waiting(), 9u) << k;
  }
  if (has_direct()) {
    EXPECT_LT(pages_in_cache(), shards().size() * 3) << "every fifth part was found";
  }
}

// Of tensors that are read in another order, and of which each part asks for all, too.
TEST_F(ReadAheadTest, WhatIsAdvisedAndNotReadIsForgotten) {
  const ModelDirectory directory =
      ModelDirectory::open(std::string(STRATA_TEST_DATA) + "/model/gpt2");
  const std::vector<Part> parts = parts_of(directory.spec(), 501);
  ReadAhead ahead(directory);
  for (size_t k = 0; k < 20 * parts.size(); ++k) {
    expect_part(parts[k % parts.size()], ahead);
    if (k > 3) ahead.finish();
    ASSERT_LE(ahead.waiting(), 5u);
  }
}

TEST_F(ReadAheadTest, AFileSystemInMemoryGivesTheSameBytes) {
  struct statfs info {};
  if (::statfs("/dev/shm", &info) != 0) GTEST_SKIP() << "no /dev/shm";
  const test::TemporaryDirectory home("/dev/shm");
  init_model(some_megabytes(), 5, {.path = home / "m", .dtype = DType::kBF16});
  const ModelDirectory directory = ModelDirectory::open(home / "m");
  ReadAhead ahead(directory, kBuffer);
  expect_equal(directory, parts_of(directory.spec(), kStep), ahead);
}

// A transpose is read in the order of its rows, which is not that of the file.
TEST_F(ReadAheadTest, TransposedAndScaledTensorsGiveTheSameBytes) {
  for (const char* name : {"gpt2", "fp8", "phi3", "float16"}) {
    const ModelDirectory directory =
        ModelDirectory::open(std::string(STRATA_TEST_DATA) + "/model/" + name);
    ReadAhead ahead(directory, kBuffer);
    SCOPED_TRACE(name);
    expect_equal(directory, parts_of(directory.spec(), 501), ahead);
  }
}

TEST_F(ReadAheadTest, AFileThatBecameShorterIsAnErrorWhereItsBytesAreNeeded) {
  const std::string file = shards().back();
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  const std::vector<Part> parts = parts_of(directory_->spec(), kStep);
  ReadAhead ahead(*directory_, kBuffer);
  expect_part(parts[0], ahead);
  ASSERT_FALSE(read_part(*directory_, parts[0], &ahead).empty());
  for (size_t k = 1; k < parts.size(); k += 2) expect_part(parts[k], ahead);
  fs::resize_file(file, static_cast<uintmax_t>(bytes / 2));
  bool failed = false;
  for (const Part& part : parts) {
    const auto range = directory_->stored_range(*part.parameter);
    const int64_t width = range.bytes / part.parameter->numel;
    const bool gone =
        range.file->path() == file && range.offset + (part.first + part.count) * width > bytes / 2;
    if (!gone) {
      ASSERT_NO_THROW(read_part(*directory_, part, &ahead)) << part.parameter->name;
      continue;
    }
    failed = true;
    try {
      read_part(*directory_, part, &ahead);
      FAIL() << part.parameter->name << " was read from a file that ends before it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("shorter"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(failed);
}

TEST_F(ReadAheadTest, TheFilesThatWereOpenedAreReadAlsoWhenOthersTakeTheirNames) {
  const std::vector<Part> parts = parts_of(directory_->spec(), kStep);
  for (const std::string& file : shards()) {
    fs::rename(file, file + ".old");
    test::write_text(file, std::string(8'000'000, 'x'));
  }
  ReadAhead ahead(*directory_, kBuffer);
  expect_equal(*directory_, parts, ahead);
}

}  // namespace
}  // namespace strata::model

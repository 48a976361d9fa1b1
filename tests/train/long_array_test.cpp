// SPDX-License-Identifier: Apache-2.0
// A long array has the same elements in memory and in a file, and holds few blocks of the latter.
#include "engine/data/long_array.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/text/text_files.h"
#include "tests/support/small_file_system.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/file_calls.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 8;

std::vector<int64_t> all_of(const LongArray& array) {
  std::vector<int64_t> values(static_cast<size_t>(array.count()));
  array.read(0, array.count(), values.data());
  return values;
}

class LongArrays : public testing::Test {
 protected:
  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "array";
};

// Appends, settles and takes back at random, in memory and in a file by the same calls.
TEST_F(LongArrays, AFileHasWhatMemoryHas) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    fs::remove(path_);
    LongArray memory(sizeof(int64_t), kBlock), file(sizeof(int64_t), kBlock);
    file.write_to(path_);
    const Philox random(seed);
    int64_t settled = 0;
    for (uint64_t k = 0; k < 60; ++k) {
      std::vector<int64_t> values(random.u64(k, 1) % 30);
      std::iota(values.begin(), values.end(), static_cast<int64_t>(k * 1000));
      const int64_t back = std::min<int64_t>(memory.count() - settled, random.u64(k, 2) % 20);
      for (LongArray* array : {&memory, &file}) {
        array->truncate(array->count() - back);
        array->append(values.data(), std::ssize(values));
      }
      if (random.u64(k, 3) % 3 == 0) settled = memory.count();
      file.settle(settled);
      ASSERT_EQ(all_of(file), all_of(memory)) << "seed " << seed << " call " << k;
      ASSERT_LE(file.bytes(), (file.count() - settled + 2 * kBlock) * file.width());
    }
    file.finish();
    EXPECT_EQ(file.bytes(), 0);
    EXPECT_EQ(all_of(file), all_of(memory)) << "seed " << seed;
    EXPECT_EQ(file.checksum(seed, 3), memory.checksum(seed, 3));
    const LongArray opened = LongArray::open(path_, sizeof(int64_t), memory.count());
    EXPECT_EQ(all_of(opened), all_of(memory));
    EXPECT_EQ(opened.read_checksum(), file.written_checksum());
  }
}

TEST_F(LongArrays, ChecksumsAreThoseOfOneBlock) {
  std::vector<int64_t> values(300'000);
  std::iota(values.begin(), values.end(), 5);
  const Numbers numbers(values);
  EXPECT_EQ(numbers.array().checksum(7, 9),
            io::checksum_block(values.data(), values.size() * sizeof(int64_t), 7, 9));
}

TEST_F(LongArrays, AShorterFileIsAnError) {
  text::write_text_file(path_, std::string(80, 'a'));
  const LongArray array = LongArray::open(path_, sizeof(int64_t), 10);
  fs::resize_file(path_, 40);
  int64_t value = 0;
  EXPECT_NO_THROW(array.read(4, 1, &value));
  EXPECT_THROW(array.read(5, 1, &value), Error);
}

TEST_F(LongArrays, AFullDiskIsAnErrorThatNamesTheOption) {
  const test::SmallFileSystem disk = test::SmallFileSystem::in_memory(folder_.path(), "1m");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  LongArray array(1, 64 << 10);
  array.write_to(path_);
  const std::string block(64 << 10, 'a');
  std::string said = "no error";
  try {
    for (int k = 0; k < 32; ++k) {
      array.append(block.data(), std::ssize(block));
      array.settle(array.count());
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    said = error.what();
  }
  EXPECT_NE(said.find("--data-cache DIR"), std::string::npos) << said;
  EXPECT_GT(fs::space(folder_.path()).available, 0u) << "some space is left to others";
}

TEST_F(LongArrays, CallsOnAFileThatHangsAreReported) {
  std::mutex mu;
  std::vector<std::string> reported;
  std::atomic<size_t> count = 0;
  Environment environment({.hang =
                               [&](const Error& error) {
                                 const std::lock_guard lock(mu);
                                 reported.push_back(error.what());
                                 ++count;
                               },
                           .hang_after_s = 0.02});
  const Environment::Scope scope(&environment);
  // Each call hangs until it is reported, or for 5 s.
  const test::FileCalls calls([&](std::string_view) {
    const size_t before = count;
    for (int k = 0; k < 500 && count == before; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  });
  LongArray array(1, kBlock);
  array.write_to(path_);
  const std::string block(kBlock, 'a');
  array.append(block.data(), kBlock);
  array.finish();
  char value = 0;
  array.read(3, 1, &value);
  EXPECT_EQ(value, 'a');
  const std::lock_guard lock(mu);
  ASSERT_EQ(reported.size(), 3u);
  for (size_t k = 0; const char* what : {"write", "sync", "read"}) {
    EXPECT_TRUE(reported[k].starts_with(what + (": " + path_) + ": no answer")) << reported[k];
    ++k;
  }
}

TEST_F(LongArrays, NumbersAreReadOneAfterAnother) {
  std::vector<int64_t> values(40'000);
  std::iota(values.begin(), values.end(), -3);
  const Numbers numbers(values);
  NumberReader reader(numbers, 10);
  for (size_t k = 10; k < values.size(); ++k) ASSERT_EQ(reader.next(), values[k]);
  EXPECT_EQ(reader.next(), std::nullopt);
}

}  // namespace
}  // namespace strata::data

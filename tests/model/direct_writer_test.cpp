// SPDX-License-Identifier: Apache-2.0
// Files that are written past the page cache have the bytes of those that went through it, in
// whatever order, pieces and type their weights come.
#include "engine/model_files/direct_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/model_writer.h"
#include "tests/model/weight_parts.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTwoBlocks = 8 * kMiB;

float weight_of(const Part& part, int64_t index) {
  return static_cast<float>((part.first + index) % 8191) * 0.0078125f +
         static_cast<float>(part.parameter->name.size());
}

void write_part(ModelWriter& writer, const Part& part) {
  std::vector<float> values(static_cast<size_t>(part.count));
  for (int64_t i = 0; i < part.count; ++i) values[static_cast<size_t>(i)] = weight_of(part, i);
  writer.write(*part.parameter, part.first, part.count, values.data());
}

class DirectWriterTest : public ::testing::Test {
 protected:
  ModelWriterOptions options(const std::string& name, DType dtype, int64_t buffer_bytes) const {
    return {.path = home_ / name,
            .dtype = dtype,
            .shard_bytes = 6'000'000,
            .buffer_bytes = buffer_bytes};
  }
  void write(const std::string& name, DType dtype, int64_t buffer_bytes, const ModelSpec& spec,
             const std::vector<Part>& parts) const {
    ModelWriter writer(spec, write_config(spec.architecture, dtype),
                       options(name, dtype, buffer_bytes));
    for (const Part& part : parts) write_part(writer, part);
    writer.finish();
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(home_ / a)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(test::read_text(entry.path().string()) ==
                  test::read_text(home_ / (b + "/" + name)))
          << name;
      ++files;
    }
    EXPECT_GE(files, 2);
  }

  test::TemporaryDirectory home_;
};

TEST_F(DirectWriterTest, TheFilesOfADriveAreTaken) {
  test::write_text(home_ / "probe", std::string(8192, 'x'));
  const File file = File::create(home_ / "probe");
  if (!file.open_direct().is_open()) GTEST_SKIP() << "no O_DIRECT in " << home_.path();
  file.allocate(10'000);
  const auto writer = DirectWriter::open({&file}, kTwoBlocks);
  ASSERT_NE(writer, nullptr);
  EXPECT_TRUE(writer->takes(file));
  const std::string text = "begins and ends within a page" + std::string(9'000, 'y');
  writer->write(file, 700, text.data(), static_cast<int64_t>(text.size()));
  writer->flush();
  const std::string found = test::read_text(home_ / "probe");
  EXPECT_EQ(found.size(), 10'000u);
  EXPECT_EQ(found.substr(700, text.size()), text);
  EXPECT_EQ(found.substr(0, 700), std::string(700, '\0'));
}

TEST_F(DirectWriterTest, AnyOrderOfAnyPiecesGivesTheSameFiles) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const ModelSpec spec = build_spec(some_megabytes());
    write("buffered", dtype, 0, spec, parts_of(spec, 1 << 20));
    for (unsigned seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937 random(seed);
      std::vector<Part> parts = parts_of(spec, 1 + random() % 200'000 + 20'000);
      if (seed % 3 == 0) std::shuffle(parts.begin(), parts.end(), random);
      if (seed % 3 == 1) std::reverse(parts.begin(), parts.end());
      write("direct", dtype, kTwoBlocks, spec, parts);
      expect_same_files("buffered", "direct");
    }
  }
}

TEST_F(DirectWriterTest, SmallPiecesInDisorderGiveTheSameFiles) {
  const ModelSpec spec = build_spec(some_megabytes());
  std::vector<Part> parts = parts_of(spec, 3001);
  write("buffered", DType::kBF16, 0, spec, parts);
  std::mt19937 random(3);
  std::shuffle(parts.begin(), parts.end(), random);
  write("direct", DType::kBF16, kTwoBlocks, spec, parts);
  expect_same_files("buffered", "direct");
}

TEST_F(DirectWriterTest, SeveralThreadsGiveTheSameFiles) {
  const ModelSpec spec = build_spec(some_megabytes());
  const std::vector<Part> parts = parts_of(spec, 70'001);
  write("buffered", DType::kBF16, 0, spec, parts);
  {
    ModelWriter writer(spec, write_config(spec.architecture, DType::kBF16),
                       options("direct", DType::kBF16, kTwoBlocks));
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < parts.size(); i += 3) write_part(writer, parts[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    writer.finish();
  }
  expect_same_files("buffered", "direct");
}

// GPT-2 stores transposes, which come in small pieces: those files go through the page cache.
TEST_F(DirectWriterTest, FilesThatGetATransposeAreTheSame) {
  const ModelDirectory gpt2 = ModelDirectory::open(std::string(STRATA_TEST_DATA) + "/model/gpt2");
  const ModelSpec& spec = gpt2.spec();
  const std::vector<Part> parts = parts_of(spec, 301);
  for (const char* name : {"buffered", "direct"}) {
    ModelWriter writer(spec, gpt2.config(),
                       options(name, DType::kF32, name[0] == 'd' ? kTwoBlocks : 0));
    for (const Part& part : parts) write_part(writer, part);
    writer.finish();
  }
  expect_same_files("buffered", "direct");
}

TEST_F(DirectWriterTest, AnExportThatIsGivenUpLeavesNothing) {
  const ModelSpec spec = build_spec(some_megabytes());
  {
    ModelWriter writer(spec, write_config(spec.architecture, DType::kBF16),
                       options("m", DType::kBF16, kTwoBlocks));
    for (const Part& part : parts_of(spec, 1 << 20)) write_part(writer, part);
  }
  EXPECT_TRUE(fs::is_empty(home_.path()));
}

}  // namespace
}  // namespace strata::model

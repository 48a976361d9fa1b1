// SPDX-License-Identifier: Apache-2.0
// The benchmark's training pattern: bytes of a step, the optimizer's work on the state, and errors
// that end three lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "small_bench.h"

namespace strata::io {
namespace {

TEST(IoBench, ATrainingStepReadsWeightsTwiceAndStateOnce) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small_bench(directory));
  const BenchResult result = bench.measure(
      {.mode = BenchMode::kTraining, .block_bytes = 64 << 10, .depth = 8, .files = 1});
  EXPECT_GE(result.steps, 1u);
  // 16 layers of 2 + 12 units of 256 KiB: 2 + 2 + 12 units read and 12 written in each.
  EXPECT_EQ(result.bytes_read, result.steps * 16 * 16 * (256ull << 10));
  EXPECT_EQ(result.bytes_written, result.steps * 16 * 12 * (256ull << 10));
  EXPECT_GT(result.optimizer_s, 0);
  ASSERT_FALSE(result.samples.empty());
  EXPECT_TRUE(std::any_of(result.samples.begin(), result.samples.end(),
                          [](const BenchSample& one) { return one.read_bytes_per_s > 0; }));
  EXPECT_LE(result.samples.back().at_s, result.seconds);
}

// With few requests in flight the state's lane still has six units under way.
TEST(IoBench, TrainingWorksAtTheLeastDepths) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small_bench(directory));
  for (const uint32_t depth : {1, 2, 3}) {
    const BenchResult result =
        bench.measure({.mode = BenchMode::kTraining, .block_bytes = 64 << 10, .depth = depth});
    EXPECT_GE(result.steps, 1u) << depth;
    EXPECT_EQ(result.bytes_read * 12, result.bytes_written * 16) << depth;
  }
}

// The one scratch file of a directory, which has no name.
std::fstream scratch_in(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!target.starts_with(directory + "/") || target.find("lock") != std::string::npos) continue;
    paths.push_back(entry.path());
  }
  EXPECT_EQ(paths.size(), 1u);
  return std::fstream(paths.at(0), std::ios::in | std::ios::out | std::ios::binary);
}

void spoil_scratch_in(const std::string& directory) {
  const std::string garbage(64 << 10, 'x');
  std::fstream file = scratch_in(directory);
  file.seekp(0, std::ios::end);
  const std::streamoff end = file.tellp();
  file.seekp(0);
  for (std::streamoff at = 0; at < end; at += kMi / 16) file << garbage;
  ASSERT_TRUE(file.flush().good() && end > 0);
}

struct Planes {
  std::vector<float> master, moment1, moment2;
};

// Of one unit of a layer's state, the last of twelve.
Planes planes_in(std::fstream& file, uint64_t layer) {
  constexpr uint64_t kUnit = 256 << 10;
  constexpr uint64_t kCount = kUnit / 12;
  Planes planes;
  file.seekg(static_cast<std::streamoff>((layer * 14 + 2 + 11) * kUnit));
  for (std::vector<float>* plane : {&planes.master, &planes.moment1, &planes.moment2}) {
    plane->resize(kCount);
    file.read(reinterpret_cast<char*>(plane->data()), kCount * sizeof(float));
  }
  EXPECT_TRUE(file.good());
  return planes;
}

// The scratch holds arbitrary bytes, of which most are numbers; the gradients are all 1e-3.
TEST(IoBench, TheOptimizerOfTrainingUpdatesTheState) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small_bench(directory));
  const auto shape = [](BenchMode mode) {
    return BenchShape{.mode = mode, .block_bytes = 64 << 10};
  };
  bench.measure(shape(BenchMode::kRead), 0.01, true);
  std::fstream file = scratch_in(directory.path());
  const Planes before[] = {planes_in(file, 0), planes_in(file, 15)};
  const BenchResult result = bench.measure(shape(BenchMode::kTraining));
  ASSERT_GE(result.steps, 1u);
  const double kept1 = std::pow(0.9, result.steps), kept2 = std::pow(0.999, result.steps);
  for (const bool last : {false, true}) {
    const Planes& old = before[last];
    const Planes now = planes_in(file, last ? 15 : 0);
    size_t compared = 0;
    for (size_t i = 0; i < now.master.size(); ++i) {
      const double moment1 = kept1 * old.moment1[i] + 1e-3 * (1 - kept1);
      const double moment2 = kept2 * old.moment2[i] + 1e-6 * (1 - kept2);
      if (!std::isnormal(old.moment1[i]) || !std::isnormal(old.moment2[i])) continue;
      ++compared;
      ASSERT_NEAR(now.moment1[i], moment1, 1e-4 * std::abs(moment1) + 1e-9) << i;
      ASSERT_NEAR(now.moment2[i], moment2, 1e-4 * std::abs(moment2) + 1e-12) << i;
    }
    EXPECT_GT(compared, now.master.size() / 2);
    EXPECT_NE(std::memcmp(now.master.data(), old.master.data(), now.master.size() * 4), 0);
  }
}

// Three lanes have requests in flight when one of them meets the error.
TEST(IoBench, AnErrorEndsTrainingAndItIsThrown) {
  const ScratchDir directory;
  BenchOptions options = small_bench(directory);
  options.seconds = 60;
  for (const uint32_t depth : {1, 16}) {
    IoBench bench(options);
    const BenchShape shape = {
        .mode = BenchMode::kTraining, .block_bytes = 64 << 10, .depth = depth};
    bench.measure(shape, 0.01, true);
    spoil_scratch_in(directory.path());
    try {
      bench.measure(shape);
      ADD_FAILURE() << "what was spoilt was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    }
  }
}

}  // namespace
}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
// The comparison with fio: turn by turn, within the limit on bytes written, under the conditions
// that we have, and nothing of it is left.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "io/bench_fio.h"
#include "io/bench_io.h"
#include "scratch_dir.h"

namespace strata::io {
namespace {

constexpr uint64_t kMi = 1 << 20;

class WithFio : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("fio --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "fio is missing";
    options_.directories = {directory_.path()};
    options_.bytes = 32 * kMi;
    options_.seconds = 0.1;
    options_.sample_s = 0.02;
  }
  // What has a name there, but for the locks.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.path().extension() != ".lock") names.push_back(entry.path());
    }
    return names;
  }

  const ScratchDir directory_;
  BenchOptions options_;
};

TEST_F(WithFio, ItIsComparedTurnByTurnAndItsFilesGo) {
  IoBench bench(options_);
  {
    FioBench fio(options_, 2);
    for (const BenchMode mode : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
      const FioComparison result = compare_with_fio(
          bench, fio, {.mode = mode, .block_bytes = 256 << 10, .depth = 8, .files = 2}, options_,
          2);
      EXPECT_EQ(result.ratio.count, 2u);
      EXPECT_GT(result.fio_bytes_per_s, 0);
      EXPECT_GT(result.strata_bytes_per_s, 0);
      EXPECT_GT(result.fio_cpu_s_per_gb, 0);
    }
    EXPECT_TRUE(names().empty()) << names()[0];
    EXPECT_EQ(options_.write_limit_bytes - bench.write_allowance(),
              bench.bytes_written() + fio.bytes_written());
  }
  EXPECT_TRUE(names().empty()) << names()[0];
}

TEST_F(WithFio, ADirectoryIsHeldAgainstASecondComparison) {
  {
    const FioBench first(options_, 1);
    EXPECT_THROW(FioBench(options_, 1), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(WithFio, ItsWritesStayWithinTheLimit) {
  options_.write_limit_bytes = 80 * kMi;  // both fillings and 16 MiB more
  IoBench bench(options_);
  FioBench fio(options_, 1);
  const BenchShape shape = {.mode = BenchMode::kWrite, .block_bytes = 256 << 10, .depth = 8};
  EXPECT_THROW(compare_with_fio(bench, fio, shape, options_, 5), Error);
  EXPECT_LE(bench.bytes_written() + fio.bytes_written(), 80 * kMi);
}

// A fio of the test's own notes what it is given, then becomes the real one.
TEST_F(WithFio, ItHasHugePages) {
  const ScratchDir programs;
  const std::string path = getenv("PATH");
  std::ofstream(programs.path() + "/fio")
      << "#!/bin/sh\necho \"$GLIBC_TUNABLES\" > " << programs.path() << "/tunables\nPATH='" << path
      << "'\nexec fio \"$@\"\n";
  std::filesystem::permissions(programs.path() + "/fio", std::filesystem::perms(0755));
  setenv("PATH", (programs.path() + ":" + path).c_str(), 1);
  {
    FioBench fio(options_, 1);
    EXPECT_GT(fio.measure({.mode = BenchMode::kRead, .depth = 4}).read_bytes_per_s, 0);
    std::string tunables;
    std::getline(std::ifstream(programs.path() + "/tunables") >> std::ws, tunables);
    EXPECT_EQ(tunables, "glibc.malloc.hugetlb=1");
  }
  setenv("PATH", path.c_str(), 1);
}

TEST_F(WithFio, ASignalEndsItEarly) {
  options_.seconds = 600;
  std::atomic<bool> stop{false};
  options_.stop = &stop;
  IoBench bench(options_);
  FioBench fio(options_, 1);
  std::thread later([&] {  // ours is not measured first: it is fio that is stopped
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    stop = true;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(fio.measure({.mode = BenchMode::kRead, .depth = 4}), Error);
  later.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 60);
  try {
    compare_with_fio(bench, fio, {.mode = BenchMode::kRead, .depth = 4}, options_, 2);
    ADD_FAILURE() << "a comparison without a round";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
}

TEST(Fio, ItsTerseLineIsUnderstood) {
  // fio 3.33, --output-format=terse --terse-version=3, cut after the processor fields.
  std::string line = "3;fio-3.33;t;0;0;2097152;1048576;1024;2000";
  for (int field = 10; field <= 46; ++field) line += ";0";
  line += ";1048576;524288;512;2000";
  for (int field = 51; field <= 87; ++field) line += ";0";
  line += ";1.500000%;3.500000%;10;0;0\n";
  const auto result = parse_fio_terse(line);
  ASSERT_TRUE(result.has_value());
  EXPECT_DOUBLE_EQ(result->read_bytes_per_s, 1048576.0 * 1024);
  EXPECT_DOUBLE_EQ(result->write_bytes_per_s, 524288.0 * 1024);
  EXPECT_NEAR(result->cpu_s_per_gb, 0.05 * 2.0 / (3145728.0 * 1024 / 1e9), 1e-12);
  EXPECT_FALSE(parse_fio_terse("fio: error\n").has_value());
  EXPECT_FALSE(parse_fio_terse("3;fio-3.33;t;0;5;1;1\n").has_value());
}

}  // namespace
}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
// The comparison with fio: turn by turn, within the limit on bytes written, under the conditions
// that we have, with errors that say what fio said, and nothing of it is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "aligned_buffer.h"
#include "io/bench_fio.h"
#include "io/bench_io.h"
#include "submission_probe.h"

namespace strata::io {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;

// What this process and the children that it has waited for sent to drives.
uint64_t bytes_written_by_the_process() {
  std::ifstream file("/proc/self/io");
  for (std::string key; file >> key;) {
    uint64_t value = 0;
    file >> value;
    if (key == "write_bytes:") return value;
  }
  return 0;
}

// A shell script that is found before the real fio, which it may become.
class FakeFio {
 public:
  explicit FakeFio(const std::string& script) : path_(getenv("PATH")) {
    std::ofstream(file("fio")) << "#!/bin/sh\n"
                               << script << "\nPATH='" << path_ << "'\nexec fio \"$@\"\n";
    std::filesystem::permissions(file("fio"), std::filesystem::perms(0755));
    setenv("PATH", (programs_.path() + ":" + path_).c_str(), 1);
    setenv("FAKE_FIO", programs_.path().c_str(), 1);
  }
  ~FakeFio() { setenv("PATH", path_.c_str(), 1); }

  std::string file(const std::string& name) const { return programs_.path() + "/" + name; }
  std::vector<std::string> lines_of(const std::string& name) const {
    std::vector<std::string> lines;
    std::ifstream text(file(name));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  std::string word_in(const std::string& name) const {
    std::string word;
    std::ifstream(file(name)) >> word;
    return word;
  }

 private:
  const test::TemporaryDirectory programs_;
  const std::string path_;
};

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

  const test::TemporaryDirectory directory_;
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

// Ours is limited to a slow rate, so that nothing says how fast fio will be.
TEST_F(WithFio, ItsWritesStayWithinTheLimit) {
  options_.seconds = 1;
  options_.limits.write_bytes_per_s = 40e6;
  options_.write_limit_bytes = 140 * kMi;  // both fillings, ours for a second, and half of that
  for (const BenchMode mode : {BenchMode::kWrite, BenchMode::kMixed}) {
    IoBench bench(options_);
    FioBench fio(options_, 1);
    const BenchShape shape = {.mode = mode, .block_bytes = 256 << 10, .depth = 8};
    const uint64_t before = bytes_written_by_the_process();
    try {
      compare_with_fio(bench, fio, shape, options_, 5);
    } catch (const Error& error) {  // on a drive that is fast enough for it
      EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    }
    const uint64_t written = bytes_written_by_the_process() - before;
    if (written < bench.bytes_written()) GTEST_SKIP() << "this file system does not count writes";
    EXPECT_LE(written, options_.write_limit_bytes + kMi) << name_of(mode);  // and its metadata
    EXPECT_GT(fio.bytes_written(), 32 * kMi) << name_of(mode);
    EXPECT_LE(bench.bytes_written() + fio.bytes_written(), options_.write_limit_bytes);
    EXPECT_EQ(bench.bytes_written_by_all(), bench.bytes_written() + fio.bytes_written());
  }
}

// Several times round its files.
TEST_F(WithFio, ItEndsByWhatItMayWriteOrByItsTime) {
  const BenchShape write = {.mode = BenchMode::kWrite, .block_bytes = 256 << 10, .depth = 8};
  for (const uint32_t files : {1, 2}) {
    options_.seconds = 60;
    FioBench fio(options_, files);
    EXPECT_TRUE(fio.measure(write, 31 * kMi).limit_reached) << "less than its files";
    EXPECT_EQ(fio.bytes_written(), 0u);
    const FioResult limited = fio.measure(write, 132 * kMi + 100);
    EXPECT_TRUE(limited.limit_reached);
    EXPECT_EQ(limited.bytes_written, 100 * kMi);
    EXPECT_EQ(fio.bytes_written(), 132 * kMi);
    // 359 blocks, each of which is written or read at random.
    const FioResult mixed =
        fio.measure({.mode = BenchMode::kMixed, .block_bytes = 64 << 10}, 16 * kMi);
    EXPECT_TRUE(mixed.limit_reached);
    EXPECT_LE(mixed.bytes_written, 16 * kMi);
    EXPECT_GT(mixed.bytes_written, 0u);
    EXPECT_TRUE(fio.measure(write, 100).limit_reached) << "less than a block";
  }
  options_.seconds = 0.3;
  FioBench fio(options_, 1);
  const auto start = std::chrono::steady_clock::now();
  const FioResult timed = fio.measure(write, kPlenty);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_FALSE(timed.limit_reached);
  EXPECT_GT(timed.write_bytes_per_s, 0);
  EXPECT_LT(seconds.count(), 30);
}

// Round and round small files: a share of writes that is not even in one round must not be the same
// in all.
TEST_F(WithFio, AMixedJobStaysWithinItsWritesHoweverOftenItGoesRound) {
  constexpr uint64_t kAllowance = 500 * kMi;
  options_.bytes = 4 * kMi;
  options_.seconds = 600;
  FioBench fio(options_, 1);
  const FioResult mixed =
      fio.measure({.mode = BenchMode::kMixed, .block_bytes = 64 << 10}, 4 * kMi + kAllowance);
  EXPECT_TRUE(mixed.limit_reached);
  EXPECT_LE(mixed.bytes_written, kAllowance);
  EXPECT_GT(mixed.bytes_written, kAllowance / 10 * 9);
}

// A fio of the test's own notes what it is given, then becomes the real one.
TEST_F(WithFio, ItHasHugePages) {
  const FakeFio fake("echo \"$GLIBC_TUNABLES\" > $FAKE_FIO/tunables");
  FioBench fio(options_, 1);
  EXPECT_GT(fio.measure({.mode = BenchMode::kRead, .depth = 4}, kPlenty).read_bytes_per_s, 0);
  EXPECT_EQ(fake.word_in("tunables"), "glibc.malloc.hugetlb=1");
}

// The same shape as ours, under the same conditions.
TEST_F(WithFio, ItsJobsHaveOurShape) {
  const FakeFio fake("echo \"$* \" >> $FAKE_FIO/jobs");
  FioBench fio(options_, 2);
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kMixed, BenchMode::kWrite}) {
    fio.measure({.mode = mode, .block_bytes = 256 << 10, .depth = 7, .files = 2}, kPlenty);
  }
  const std::vector<std::string> jobs = fake.lines_of("jobs");
  ASSERT_EQ(jobs.size(), 5u) << "the version, the layout, and three measurements";
  const std::string patterns[] = {"read", "rw", "write"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string& job = jobs[2 + i];
    for (const std::string& argument :
         {"--rw=" + patterns[i], std::string("--bs=262144"), std::string("--iodepth=7"),
          std::string("--direct=1"), std::string("--ioengine=io_uring"),
          std::string("--registerfiles=1"), std::string("--fixedbufs=1"),
          std::string("--scramble_buffers=0"), std::string("--rwmixread=50"),
          std::string("--runtime=100000us"), "--size=" + std::to_string(32 * kMi)}) {
      EXPECT_NE(job.find(argument + " "), std::string::npos) << argument << " is not in " << job;
    }
    EXPECT_EQ(std::count(job.begin(), job.end(), ':'), 1) << "two files: " << job;
  }
}

// Ours, fio, fio; then fio, ours, fio.
TEST_F(WithFio, WhoGoesFirstChangesFromRoundToRound) {
  const FakeFio fake("case \"$*\" in *--rw=read*) date +%s.%N >> $FAKE_FIO/starts;; esac");
  options_.backend = Backend::kUring;
  try {
    IoBench bench(options_);
    FioBench fio(options_, 1);
    const BenchShape shape = {.block_bytes = 256 << 10, .depth = 4};
    bench.measure(shape, 0.01, true);
    const SubmissionProbe probe;
    compare_with_fio(bench, fio, shape, options_, 2);
    std::vector<double> starts;
    for (const std::string& line : fake.lines_of("starts")) starts.push_back(std::stod(line));
    ASSERT_EQ(starts.size(), 4u);
    std::array<size_t, 5> ours{};  // before the first, between them, after the last
    for (const Submission& one : probe.taken()) {
      ++ours[static_cast<size_t>(
          std::count_if(starts.begin(), starts.end(), [&](double at) { return at < one.at_s; }))];
    }
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i] > 0, i == 0 || i == 3) << i;
  } catch (const Error& error) {
    if (std::string(error.what()).find("io_uring is not available") == std::string::npos) throw;
    GTEST_SKIP() << error.what();
  }
}

// It may have written all that it was allowed to.
TEST_F(WithFio, ItsFailureIsToldInItsWordsAndWhatItMayHaveWrittenCounts) {
  const FakeFio fake(
      "case \"$*\" in *io_size*)\n"
      "  echo \"fio: io_u error on file scratch: No space left on device\"\n"
      "  echo \"3;fio-3.33;strata-bench;0;28;0;0\"\n"
      "  exit 1;;\n"
      "esac");
  options_.write_limit_bytes = 200 * kMi;
  options_.limits.write_bytes_per_s = 100e6;  // so that ours leaves some of it
  IoBench bench(options_);
  FioBench fio(options_, 1);
  try {
    compare_with_fio(bench, fio, {.mode = BenchMode::kWrite, .depth = 4}, options_, 1);
    ADD_FAILURE() << "a comparison without fio";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(
        text.find("fio failed: fio: io_u error on file scratch: No space left on device (see"),
        std::string::npos)
        << text;
    EXPECT_EQ(text.find("3;fio"), std::string::npos) << text;
  }
  EXPECT_EQ(bench.bytes_written_by_all(), 200 * kMi);
}

TEST_F(WithFio, OneThatHangsIsKilledAtTheDeadline) {
  const FakeFio fake(
      "case \"$*\" in *time_based*)\n"
      "  sleep 600 &\n"
      "  echo $! > $FAKE_FIO/pid\n"
      "  wait;;\n"
      "esac");
  options_.deadline_s = 0.5;
  FioBench fio(options_, 1);
  const auto start = std::chrono::steady_clock::now();
  try {
    fio.measure({.mode = BenchMode::kRead, .depth = 4}, kPlenty);
    ADD_FAILURE() << "a result of nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
    EXPECT_NE(std::string(error.what()).find("was killed (the drive hangs"), std::string::npos);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 60);
  // What was killed ends when it is its turn.
  const std::string status = "/proc/" + fake.word_in("pid") + "/stat";
  const auto is_there = [&] {
    std::string text;
    std::getline(std::ifstream(status) >> std::ws, text);
    return !text.empty() && text.find(") Z") == std::string::npos;
  };
  for (int tries = 0; is_there() && tries < 3000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(is_there());
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
  EXPECT_THROW(fio.measure({.mode = BenchMode::kRead, .depth = 4}, kPlenty), Error);
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
  EXPECT_EQ(result->bytes_written, 1048576u * 1024);
  EXPECT_TRUE(parse_fio_terse("fio: a warning\n" + line + "fio: terminating\n").has_value());
  EXPECT_FALSE(parse_fio_terse("fio: error\n").has_value());
  EXPECT_FALSE(parse_fio_terse("3;fio-3.33;t;0;5;1;1\n").has_value());
}

TEST(Fio, WhatItSaysOfAFailureIsOneLine) {
  EXPECT_EQ(fio_words("fio: pid=7, err=5\n\n3;fio-3.33;t;0;5;1;1\nfio: done\n"),
            "fio: pid=7, err=5; fio: done");
  EXPECT_EQ(fio_words("3;fio-3.33;t;0;28;1;1\n"), "No space left on device");
  EXPECT_EQ(fio_words(""), "it ended without a result and said nothing");
  EXPECT_LT(fio_words(std::string(10000, 'x')).size(), 500u);
}

// Drifts of the machine are in both of a round: the median of ratios, not a ratio of medians.
TEST(FioRounds, RatiosAreOfNeighboursAndTheControlIsFioAgainstItself) {
  const FioComparison comparison = comparison_of(
      {.mode = BenchMode::kWrite},
      {{.strata = 1.1e9, .fio = 1e9, .another_fio = 0.9e9, .strata_cpu = 3, .fio_cpu = 1},
       {.strata = 6e9, .fio = 5e9, .another_fio = 5e9, .strata_cpu = 5, .fio_cpu = 9},
       {.strata = 2.6e9, .fio = 2e9, .another_fio = 1.6e9, .strata_cpu = 4, .fio_cpu = 2}});
  EXPECT_EQ(comparison.shape.mode, BenchMode::kWrite);
  EXPECT_DOUBLE_EQ(comparison.strata_bytes_per_s, 2.6e9);
  EXPECT_DOUBLE_EQ(comparison.fio_bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(comparison.ratio.median, 1.2);
  EXPECT_DOUBLE_EQ(comparison.control.median, 0.9);
  EXPECT_DOUBLE_EQ(comparison.control.low, 0.8);
  EXPECT_DOUBLE_EQ(comparison.control.high, 1.0);
  EXPECT_EQ(comparison.ratio.count, 3u);
  EXPECT_DOUBLE_EQ(comparison.strata_cpu_s_per_gb, 4);
  EXPECT_DOUBLE_EQ(comparison.fio_cpu_s_per_gb, 2);
}

TEST(FioVerdict, NeedsRoundsAndAnIntervalWhollyBelowParity) {
  const auto of = [](double low, double median, double high, size_t count) {
    FioComparison comparison;
    comparison.ratio = {.median = median, .low = low, .high = high, .count = count};
    return verdict_of(comparison);
  };
  EXPECT_EQ(of(0.80, 0.90, 0.96, 21), FioVerdict::kSlower);
  EXPECT_EQ(of(0.80, 0.90, 0.96, 7), FioVerdict::kSlower);
  EXPECT_EQ(of(0.80, 0.90, 0.96, 6), FioVerdict::kNone);
  EXPECT_EQ(of(0.80, 0.90, 0.975, 21), FioVerdict::kAsFast);
  EXPECT_EQ(of(1.10, 1.20, 1.30, 21), FioVerdict::kAsFast);
  EXPECT_EQ(of(1.10, 1.20, 1.30, 6), FioVerdict::kNone);
}

}  // namespace
}  // namespace strata::io

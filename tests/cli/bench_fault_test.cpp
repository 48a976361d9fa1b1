// SPDX-License-Identifier: Apache-2.0
// `strata bench io` on drives that are too small or full, and ended by a signal at any time: it
// says what is missing before it writes, and leaves nothing.
#include "tests/cli/bench_run.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/small_file_system.h"

namespace strata::cli::test {
namespace {

using strata::test::FuseMount;
using strata::test::SmallFileSystem;

class BenchFaults : public BenchTest {
 protected:
  int run_small(const Arguments& more) {
    Arguments all = {"bench", "io", "--nvme", "drive", "--seconds", "0.05", "--depth", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }

  // Takes all that is left of the drive.
  void fill_drive() const {
    std::ofstream filler(sandbox_ / "drive/filler");
    const std::string block(4096, 'x');
    while (filler << block << std::flush) {
    }
  }

  std::vector<std::string> names_on_drive() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "drive")) {
      const std::string name = entry.path().filename().string();
      if (name != "lost+found") names.push_back(name);
    }
    return names;
  }
};

TEST_F(BenchFaults, ADriveThatIsTooSmallIsRefusedBeforeAnythingIsWritten) {
  const auto small = SmallFileSystem::on_drive(sandbox_ / "drive", sandbox_ / "image", "24M");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  const Arguments fitting = {"--size", "8MiB", "--block", "64KiB", "--mode", "read,write,mixed"};
  ASSERT_EQ(run_small(fitting), 0) << err_;
  EXPECT_TRUE(names_on_drive().empty());
  for (const char* size : {"32MiB", "2GiB"}) {
    EXPECT_EQ(run_small({"--size", size, "--block", "64KiB", "--mode", "read,write,mixed"}),
              kDoesNotFit)
        << err_;
    for (const char* text : {"reserve scratch: drive: needs ", "missing ", "lower the size"}) {
      EXPECT_NE(err_.find(text), std::string::npos) << text << " is not in\n" << err_;
    }
    EXPECT_EQ(out_, "");
    EXPECT_TRUE(names_on_drive().empty()) << names_on_drive()[0];
  }
  if (std::system("fio --version > /dev/null 2>&1") != 0) return;
  Arguments compared = {"--size", "12MiB", "--block", "64KiB", "--compare-fio"};
  compared.insert(compared.end(), {"--mode", "read", "--rounds", "1"});
  EXPECT_EQ(run_small(compared), kDoesNotFit) << err_;
  EXPECT_NE(err_.find("beside our own scratch"), std::string::npos) << err_;
  EXPECT_TRUE(names_on_drive().empty()) << names_on_drive()[0];
}

TEST_F(BenchFaults, AFullDriveIsRefusedAndKeepsWhatIsThere) {
  const auto small = SmallFileSystem::on_drive(sandbox_ / "drive", sandbox_ / "image", "16M");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  fill_drive();
  const std::string before = read_text(sandbox_ / "drive/filler");
  EXPECT_EQ(run_small({"--size", "8MiB", "--block", "64KiB", "--mode", "read"}), kDoesNotFit)
      << err_;
  EXPECT_NE(err_.find("(free space there, or name another directory)"), std::string::npos) << err_;
  EXPECT_EQ(names_on_drive(), std::vector<std::string>{"filler"});
  EXPECT_TRUE(read_text(sandbox_ / "drive/filler") == before);
}

// This disk has no fallocate: its scratch is reserved with zeros.
TEST_F(BenchFaults, ZerosThatReserveTheScratchCountAsWritten) {
  const FuseMount disk(sandbox_ / "drive");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  const auto limited = [&](const std::string& limit) {
    return run({"bench", "io", "--nvme", "drive", "--size", "8MiB", "--block", "64KiB", "--depth",
                "2", "--mode", "write", "--seconds", "60", "--json", "--write-limit", limit});
  };
  EXPECT_EQ(limited("12MiB"), kUsage) << err_;
  EXPECT_NE(err_.find("8 MiB of zeros exceed what is left of the limit on bytes written, 4 "),
            std::string::npos)
      << err_;
  EXPECT_LT(disk.written_bytes(), 4096u) << "a lock at most";
  ASSERT_EQ(limited("20MiB"), 0) << err_;
  constexpr uint64_t kLimit = 20 << 20;
  EXPECT_LE(disk.written_bytes(), kLimit + 4096);
  EXPECT_GE(disk.written_bytes(), kLimit);
  EXPECT_NE(out_.find("\"bytes_written\": " + std::to_string(kLimit)), std::string::npos) << out_;
}

// Two drives, which stripes by speed would suit.
TEST_F(BenchFaults, WeightsThatTheLimitDoesNotAllowAreSaid) {
  std::filesystem::create_directory(sandbox_ / "other");
  const FuseMount disk(sandbox_ / "other");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  const auto limited = [&](const std::string& directories, const std::string& limit) {
    return run({"bench", "io", "--nvme", directories, "--size", "8MiB", "--block", "64KiB",
                "--depth", "2", "--mode", "read", "--seconds", "0.05", "--write-limit", limit});
  };
  const std::string text =
      "stripes are equal: measuring the speed of each directory writes up to 512 MiB more than "
      "the scratch, which --write-limit does not allow (raise it)";
  EXPECT_EQ(limited("drive,other", "100MiB"), 0) << err_;
  EXPECT_NE(err_.find(text), std::string::npos) << err_;
  std::filesystem::create_directory(sandbox_ / "same");
  EXPECT_EQ(limited("drive,same", "100MiB"), 0) << err_;
  EXPECT_EQ(err_.find("stripes are equal"), std::string::npos) << "one drive: " << err_;
}

TEST_F(BenchFaults, AComparisonWithFioThatIsKilledLeavesNoFile) {
  if (std::system("fio --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "fio is missing";
  Arguments compare = {"bench", "io", "--nvme", "drive", "--size", "32MiB", "--block", "64KiB"};
  compare.insert(compare.end(), {"--mode", "read", "--compare-fio", "--depth", "2"});
  Arguments rounds = compare;
  rounds.insert(rounds.end(), {"--rounds", "1000", "--seconds", "0.05"});
  Process killed(rounds, {.directory = sandbox_.path()});
  ASSERT_TRUE(killed.prints_error("read 64 KiB depth 2")) << killed.err();
  std::this_thread::sleep_for(std::chrono::seconds(2));  // in some round
  killed.kill(SIGKILL);
  killed.wait();
  for (const std::string& name : names_on_drive()) EXPECT_TRUE(name.ends_with(".lock")) << name;
  compare.insert(compare.end(), {"--rounds", "1", "--seconds", "0.1"});
  Process next(compare, {.directory = sandbox_.path()});
  const int code = next.wait();
  EXPECT_TRUE(code == 0 || code == 1) << next.err();  // as fast as fio or not
  EXPECT_TRUE(names_on_drive().empty()) << names_on_drive()[0];
}

// While the scratch is filled, before anything is measured.
TEST_F(BenchFaults, ASignalWhileItFillsTheScratchLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Process process({"bench", "io", "--nvme", "drive", "--size", "64MiB", "--block", "64KiB",
                     "--depth", "2", "--mode", "read", "--nvme-rate", "1GB,1MB"},
                    {.directory = sandbox_.path()});
    ASSERT_TRUE(process.prints_error("read 64 KiB depth 2")) << process.err();
    process.kill(signal);
    EXPECT_EQ(process.wait(), 128 + signal) << process.err();
    EXPECT_TRUE(names_on_drive().empty()) << names_on_drive()[0];
  }
}

}  // namespace
}  // namespace strata::cli::test

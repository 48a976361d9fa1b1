// SPDX-License-Identifier: Apache-2.0
// `strata bench io` when it is asked to end: in order at the first request, at once at the second.
#include "tests/cli/bench_run.h"

namespace strata::cli::test {
namespace {

// A large model's planning takes longer than its measurements; where it was over before the signal
// came, that is tried again.
TEST_F(BenchTest, ASignalEndsThePlanningAndKeepsWhatWasMeasured) {
  make_model(sandbox_, "model", {});
  std::string config = read_text(sandbox_ / "model/config.json");
  const std::string layers = "\"num_hidden_layers\": ";
  const size_t at = config.find(layers);
  ASSERT_NE(at, std::string::npos) << config;
  const size_t end = config.find_first_not_of("0123456789", at + layers.size());
  config.replace(at, end - at, layers + "300");
  write_text(sandbox_ / "model/config.json", config);
  int code = 0;
  for (int i = 0; i < 20 && code == 0; ++i) {
    Process process(bench({"--mode", "read,write,mixed", "--machine", STRATA_MACHINE, "--for",
                           "model", "--tokens", "512", "--host-memory", "300MiB"}),
                    {.directory = sandbox_.path()});
    ASSERT_TRUE(process.prints_error("planning a step of model")) << process.err();
    const auto start = std::chrono::steady_clock::now();
    process.kill(SIGINT);
    code = process.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_NE(process.out().find("mixed"), std::string::npos) << process.out();
    EXPECT_EQ(process.out().find("tokens a step") == std::string::npos, code != 0);
    expect_empty_drive();
  }
  EXPECT_EQ(code, 128 + SIGINT);
}

TEST_F(BenchTest, ASignalIsHeededAtAnyRateAndASecondOneAtOnce) {
  for (const bool twice : {false, true}) {
    Process process(bench({"--mode", "read", "--nvme-rate", "1MB,1MB"}),
                    {.directory = sandbox_.path()});
    ASSERT_TRUE(process.prints_error("read 64 KiB depth 4")) << process.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto start = std::chrono::steady_clock::now();
    process.kill(SIGTERM);
    if (twice) process.kill(SIGINT);
    const int code = process.wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(code == 128 + SIGTERM || (twice && code == 128 + SIGINT)) << code;
    EXPECT_LT(seconds.count(), 20);
    EXPECT_EQ(process.out().find("--write-limit"), std::string::npos) << process.out();
    if (!twice) expect_empty_drive();
    // Nobody cleans up after the second one: the lock's file stays, and nobody holds it.
    std::filesystem::remove(sandbox_ / "drive/strata.lock");
    expect_empty_drive();
  }
}

// As timeout(1) signals a process and then its group.
TEST_F(BenchTest, TheSameSignalTwiceInAMomentIsOneRequest) {
  Process process(bench({"--mode", "read", "--nvme-rate", "1MB,1MB", "--seconds", "60", "--json"}),
                  {.directory = sandbox_.path()});
  ASSERT_TRUE(process.prints_error("read 64 KiB depth 4")) << process.err();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  process.kill(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM) << process.err();
  expect_empty_drive();  // an end at once leaves the lock's file
}

TEST_F(BenchTest, AnInterruptionPrintsWhatThereIsAndLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Process process(bench({"--seconds", "0.5", "--depth", "1,2,3,4,5,6,7,8", "--mode", "read",
                           "--files", "1,2,3,4"}),
                    {.directory = sandbox_.path()});
    ASSERT_TRUE(process.prints_error("depth 3")) << process.err();
    process.kill(signal);
    EXPECT_EQ(process.wait(), 128 + signal);
    EXPECT_NE(process.out().find("read       64 KiB     2 "), std::string::npos) << process.out();
    expect_empty_drive();
  }
}

// The first signal waits for a fio that does not heed it.
TEST_F(BenchTest, ASecondSignalWaitsForNothing) {
  std::filesystem::create_directory(sandbox_ / "bin");
  write_text(sandbox_ / "bin/fio",
             "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\ntrap '' TERM\necho $$ > pid\n"
             "exec sleep 30\n");
  std::filesystem::permissions(sandbox_ / "bin/fio", std::filesystem::perms(0755));
  const std::string path = getenv("PATH");
  setenv("PATH", (sandbox_ / "bin:" + path).c_str(), 1);
  Process process(bench({"--compare-fio", "--mode", "read", "--rounds", "1"}),
                  {.directory = sandbox_.path()});
  setenv("PATH", path.c_str(), 1);
  while (!read_text(sandbox_ / "pid").ends_with("\n") && !process.is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process.kill(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(process.is_over());
  const auto start = std::chrono::steady_clock::now();
  process.kill(SIGINT);
  EXPECT_EQ(process.wait(), 128 + SIGINT) << process.err();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 15);
  ::kill(std::stoi(read_text(sandbox_ / "pid")), SIGKILL);
}

}  // namespace
}  // namespace strata::cli::test

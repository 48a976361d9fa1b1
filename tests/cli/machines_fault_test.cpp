// SPDX-License-Identifier: Apache-2.0
// Ranks on machines with a network of their own between them: the bits of one machine's run, and
// what happens when a machine is cut off, or all of its processes are killed.
#include "tests/support/machines.h"

#include <algorithm>

#include "tests/cli/launched_runs.h"

namespace strata::cli::test {
namespace {

using strata::test::Machines;

class OnMachines : public LaunchedRuns {
 protected:
  void SetUp() override {
    if (!machines_.refusal().empty()) GTEST_SKIP() << machines_.refusal();
    std::filesystem::create_directory(sandbox_ / "temporary");
    setenv("TMPDIR", (sandbox_ / "temporary").c_str(), 1);
    LaunchedRuns::SetUp();
    write_text(sandbox_ / "secret", std::string(64, 'a'));
    chmod((sandbox_ / "secret").c_str(), 0600);
  }

  std::unique_ptr<Process> start(int machine, int ranks, const Arguments& more,
                                 const Arguments& options = {}) const {
    std::filesystem::create_directories(drive(machine));
    Arguments words = {"launch",
                       "--nodes",
                       "2",
                       "--node-rank",
                       std::to_string(machine),
                       "--ranks",
                       std::to_string(ranks),
                       "--rendezvous",
                       Machines::host(0) + ":29500",
                       "--secret-file",
                       "secret"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    Arguments command = train("run", more);
    if (!has_profile_) {
      const auto at = std::ranges::find(command, "--machine");
      command.erase(at, at + 2);
    }
    words.insert(words.end(), command.begin(), command.end());
    // Each machine has a drive of its own at the same path.
    Arguments wrap = machines_.on(machine);
    const Arguments mount = {
        "sh", "-c",
        "mount --bind " + drive(machine) + " " + (sandbox_ / "drive") + " && exec \"$@\"", "sh"};
    wrap.insert(wrap.end(), mount.begin(), mount.end());
    return std::make_unique<Process>(words,
                                     ProcessOptions{.directory = sandbox_.path(), .wrap = wrap});
  }
  std::string drive(int machine) const {
    std::filesystem::create_directories(sandbox_ / "drive");
    return sandbox_ / ("drive-of-" + std::to_string(machine));
  }

  // How long the processes live on.
  static double end_s(const std::vector<Process*>& processes, double limit_s) {
    const auto begin = std::chrono::steady_clock::now();
    const auto now_s = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (Process* process : processes) {
      while (!process->has_left() && now_s() < limit_s) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    return now_s();
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(ranks_of("run").empty());
    for (const char* folder : {"temporary", "drive-of-0", "drive-of-1"}) {
      EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / folder)) << folder;
    }
  }

  const Machines machines_{2};
  bool has_profile_ = true;  // else rank 0 measures, and all of them the network
};

TEST_F(OnMachines, TwoMachinesHaveTheBitsOfOne) {
  ASSERT_TRUE(machines_.limit(0, 400) && machines_.limit(1, 400));
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Arguments steps = {"--steps", "4", "--force", "--nvme", "drive", "--offload", "nvme"};
    const auto second = start(1, ranks, steps);
    const auto first = start(0, ranks, steps);
    EXPECT_EQ(first->wait(), 0) << first->err();
    EXPECT_EQ(second->wait(), 0) << second->err();
    EXPECT_NE(first->err().find("machines: 2, and plans are made for the least"), std::string::npos)
        << first->err();
    expect_nothing_left();
    // Four ranks of one machine add in another order (LaunchNodes.MachinesOfSeveralRanks*).
    if (ranks > 1) continue;
    Arguments alone = steps;
    alone.insert(alone.end(), {"--ranks", std::to_string(2 * ranks)});
    EXPECT_EQ(state_in(first->out()), state_of(train("one", alone)));
  }
}

// Of 50 MB/s that the link lets through, headers of packets are about 4 %.
TEST_F(OnMachines, TheNetworkBetweenThemIsMeasured) {
  ASSERT_TRUE(machines_.limit(0, 400) && machines_.limit(1, 400));
  setenv("XDG_CACHE_HOME", (sandbox_ / "cache").c_str(), 1);
  has_profile_ = false;
  const auto second = start(1, 2, {"--steps", "2"});
  const auto first = start(0, 2, {"--steps", "2"});
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(second->wait(), 0) << second->err();
  unsetenv("XDG_CACHE_HOME");
  const std::string said = first->err(), begin = "network: measured: each of the 2 machines sends ";
  const size_t at = said.find(begin);
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_NEAR(std::stod(said.substr(at + begin.size())), 0.048, 0.012) << said;
  const auto has_rate = [](const std::string& text) {
    return text.find("network_bytes_per_s") != std::string::npos;
  };
  EXPECT_TRUE(has_rate(read_text(sandbox_ / "run/run.json")));
  int profiles = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "cache/strata")) {
    profiles += has_rate(read_text(entry.path()));
  }
  EXPECT_EQ(profiles, 1);
}

// The kernel of the machine that is cut off acknowledges nothing for 6 s; the rest is for a busy
// machine. A process that is only silent is given up after 25 s.
TEST_F(OnMachines, AMachineThatIsCutOffEndsBothSides) {
  const auto second = start(1, 1, {"--steps", "1000000"});
  const auto first = start(0, 1, {"--steps", "1000000"});
  ASSERT_TRUE(first->prints("step 1/")) << first->err();
  ASSERT_TRUE(machines_.cut_off(1));
  const double took_s = end_s({first.get(), second.get()}, 60);
  std::printf("both sides ended after %.1f s\n", took_s);
  EXPECT_LT(took_s, 20);
  EXPECT_EQ(first->wait(), 4);
  EXPECT_EQ(second->wait(), 4);
  EXPECT_NE(first->err().find("rank 1 is gone (its machine did not answer for 6 s"),
            std::string::npos)
      << first->err();
  expect_nothing_left();
}

TEST_F(OnMachines, AMachineThatIsCutOffForAWhileTakesPartAgain) {
  const Arguments options = {"--max-restarts", "3"};
  const Arguments steps = {"--steps", "1000000", "--checkpoint-every", "3"};
  const auto second = start(1, 1, steps, options);
  const auto first = start(0, 1, steps, options);
  ASSERT_TRUE(trains(*first, 1)) << first->err();
  ASSERT_TRUE(saves_after(0));
  ASSERT_TRUE(machines_.cut_off(1));
  ASSERT_TRUE(all_end("run", 60));
  ASSERT_TRUE(machines_.connect_again(1));
  ASSERT_TRUE(trains(*first, 2)) << first->out() << first->err() << second->err();
  first->kill(SIGTERM);
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_NE(first->err().find("restart 1 of 3 goes on from step"), std::string::npos)
      << first->err();
  EXPECT_NE(first->err().find(" with 2 ranks"), std::string::npos) << first->err();
  expect_nothing_left();
  const std::string total = std::to_string(newest_step() + 2);
  const std::string broken =
      state_of(launch(2, {"train", "--out", "run", "--resume", "--steps", total}));
  EXPECT_EQ(broken, state_of(launch(2, train("whole", {"--steps", total}))));
}

TEST_F(OnMachines, AMachineThatStaysCutOffIsLeftOut) {
  const Arguments options = {"--max-restarts",        "3", "--min-ranks", "1",
                             "--rendezvous-deadline", "15"};
  const Arguments steps = {"--steps", "1000000", "--checkpoint-every", "3"};
  const auto second = start(1, 1, steps, options);
  const auto first = start(0, 1, steps, options);
  ASSERT_TRUE(trains(*first, 1)) << first->err();
  ASSERT_TRUE(machines_.cut_off(1));
  EXPECT_EQ(second->wait(), 4) << second->err();
  ASSERT_TRUE(trains(*first, 2)) << first->out() << first->err() << second->err();
  first->kill(SIGTERM);
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_NE(first->err().find(" with 1 rank\n"), std::string::npos) << first->err();
  EXPECT_NE(second->err().find("machine 0 did not listen at"), std::string::npos) << second->err();
  expect_nothing_left();
}

TEST_F(OnMachines, AMachineWhoseProcessesAreKilledEndsTheOther) {
  const auto first = start(0, 1, {"--steps", "1000000"});
  while (ranks_of("run").empty() && !first->is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const pid_t rank_0 = ranks_of("run").front();
  const auto second = start(1, 1, {"--steps", "1000000"});
  ASSERT_TRUE(first->prints("step 1/")) << first->err();
  for (const pid_t rank : ranks_of("run")) {
    if (rank != rank_0) kill(rank, SIGKILL);
  }
  second->kill(SIGKILL);
  const double took_s = end_s({first.get()}, 60);
  std::printf("the other side ended after %.1f s\n", took_s);
  EXPECT_LT(took_s, 15);
  EXPECT_EQ(first->wait(), 4);
  EXPECT_NE(first->err().find("rank 1 is gone (did its process end?)"), std::string::npos)
      << first->err();
  expect_nothing_left();
}

}  // namespace
}  // namespace strata::cli::test

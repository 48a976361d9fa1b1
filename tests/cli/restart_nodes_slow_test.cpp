// SPDX-License-Identifier: Apache-2.0
// `strata launch --max-restarts` on several machines, all of them this one: they meet again after a
// failure, go on with fewer when one does not come back, and end together.
#include "bindings/cli/launchers_meeting.h"
#include "tests/cli/launched_nodes.h"

namespace strata::cli::test {
namespace {

MachineCount machines(int64_t present, const MachineNeeds& needs) {
  return machines_to_start(present, needs);
}

TEST(MachinesToStart, AStepHasTheSameMicroBatches) {
  const MachineNeeds four = {.nodes = 4, .ranks = 2, .accumulate = 3, .min_ranks = 2};
  const int64_t accumulate[] = {12, 6, 4, 3};
  for (int64_t present = 1; present <= 4; ++present) {
    EXPECT_EQ(machines(present, four).nodes, present);
    EXPECT_EQ(machines(present, four).accumulate, accumulate[present - 1]);
  }
  const MachineNeeds one_each = {.nodes = 4, .ranks = 1, .accumulate = 1, .min_ranks = 1};
  EXPECT_EQ(machines(3, one_each).nodes, 2) << "4 micro-batches are not shared by 3 ranks";
  EXPECT_EQ(machines(3, one_each).accumulate, 2);
}

TEST(MachinesToStart, TooFewRanksAndCutCopiesAreNone) {
  EXPECT_EQ(machines(1, {.nodes = 2, .ranks = 1, .accumulate = 1}).nodes, 0) << "all by default";
  EXPECT_EQ(machines(3, {.nodes = 4, .ranks = 1, .accumulate = 1, .min_ranks = 3}).nodes, 0);
  const MachineNeeds copies = {
      .nodes = 4, .ranks = 1, .accumulate = 1, .shard_ranks = 2, .min_ranks = 1};
  EXPECT_EQ(machines(2, copies).nodes, 2);
  EXPECT_EQ(machines(1, copies).nodes, 0);
}

class RestartNodes : public LaunchedNodes {
 protected:
  Arguments restarting(const Nodes& all, int rank, const Arguments& options,
                       const Arguments& command, const char* deadline = "60") const {
    Arguments words = node(all, rank, command);
    *std::find(words.begin(), words.end(), "60") = deadline;
    words.insert(words.begin() + 1, options.begin(), options.end());
    return words;
  }
  pid_t process_of(int rank) const {
    for (const pid_t process : ranks_of("run")) {
      const std::string all = read_of_process(process, "environ");
      const std::string variable = "STRATA_RANK=" + std::to_string(rank);
      if (('\0' + all).find('\0' + variable + '\0') != std::string::npos) return process;
    }
    return 0;
  }
};

const Arguments kLong = {"--steps", "1000000", "--checkpoint-every", "3"};

TEST_F(RestartNodes, AllMachinesStartAgainAfterAKillOnOne) {
  const Nodes nodes;
  const Arguments once = {"--max-restarts", "1"};
  Process second(restarting(nodes, 1, once, train("run", kLong)), here());
  Process first(restarting(nodes, 0, once, train("run", kLong)), here());
  ASSERT_TRUE(trains(first, 1)) << first.out() << first.err() << second.err();
  ASSERT_TRUE(saves_after(0));
  kill(process_of(1), SIGKILL);
  ASSERT_TRUE(trains(first, 2)) << first.out() << first.err() << second.err();
  second.kill(SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  for (const Process* each : {&first, &second}) {
    EXPECT_NE(each->err().find("was ended by signal 9 (Killed); restart 1 of 1 goes on from step"),
              std::string::npos)
        << each->err();
  }
  const std::string steps = std::to_string(newest_step() + 2);
  const std::string broken =
      state_of(launch(2, {"train", "--out", "run", "--resume", "--steps", steps}));
  EXPECT_EQ(broken, state_of(launch(2, train("whole", {"--steps", steps}))));
  EXPECT_EQ(losses_of("run"), losses_of("whole"));
}

TEST_F(RestartNodes, AMachineThatDoesNotComeBackIsLeftOutAndAStepKeepsItsSamples) {
  const Nodes nodes;
  const Arguments options = {"--max-restarts", "2", "--min-ranks", "1"};
  Process second(restarting(nodes, 1, options, train("run", kLong)), here());
  Process first(restarting(nodes, 0, options, train("run", kLong), "15"), here());
  ASSERT_TRUE(trains(first, 1)) << first.out() << first.err() << second.err();
  ASSERT_TRUE(saves_after(0));
  second.kill(SIGKILL);
  kill(process_of(1), SIGKILL);
  ASSERT_TRUE(trains(first, 2)) << first.out() << first.err();
  const int64_t newest = newest_step();
  ASSERT_TRUE(saves_after(newest));
  first.kill(SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.err();
  const std::string line = "machine 1 did not come within 15 s; restart 1 of 2 goes on from step ";
  const size_t at = first.err().find(line);
  ASSERT_NE(at, std::string::npos) << first.err();
  const std::string from = std::to_string(std::stoll(first.err().substr(at + line.size())));
  EXPECT_NE(first.err().find(" with 1 rank\n", at), std::string::npos) << first.err();
  // The same meshes without a failure.
  const std::string steps = std::to_string(newest_step() + 2);
  const Arguments alone = {"--ranks", "1", "--accumulate", "2", "--steps", steps};
  state_of(train("whole", {"--ranks", "2", "--steps", from}));
  Arguments rest = {"train", "--out", "whole", "--resume", "--force"};
  rest.insert(rest.end(), alone.begin(), alone.end());
  const std::string whole = state_of(rest);
  EXPECT_EQ(state_of({"train", "--out", "run", "--resume", "--steps", steps}), whole);
  EXPECT_EQ(losses_of("run"), losses_of("whole"));
}

// Rank 0 finds the mistake when it knows all machines.
TEST_F(RestartNodes, AMistakeEndsAllMachines) {
  const Nodes nodes;
  const Arguments options = {"--max-restarts", "3"};
  const Arguments command = {"train", "--model", "model",         "--data", STRATA_TEXT,
                             "--out", "run",     "--host-memory", "32MiB"};
  Process second(restarting(nodes, 1, options, command), here());
  Process first(restarting(nodes, 0, options, command), here());
  EXPECT_EQ(first.wait(), 3) << first.err();
  EXPECT_EQ(second.wait(), 4) << second.err();
  EXPECT_EQ(first.err().find("; restart"), std::string::npos) << first.err();
  EXPECT_EQ(second.err().find("; restart"), std::string::npos) << second.err();
}

TEST_F(RestartNodes, ASignalEndsAWaitForOtherMachines) {
  const Nodes nodes;
  for (const int machine : {0, 1}) {
    Process alone(restarting(nodes, machine, {"--max-restarts", "3"}, train("run", kLong)), here());
    // It listens or connects within a moment; a signal before that ends it as well.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    alone.kill(SIGINT);
    EXPECT_NE(alone.wait(), 0);
    EXPECT_TRUE(ranks_of("run").empty());
  }
}

TEST_F(RestartNodes, MinRanksThatNoMeshCanHaveIsRefused) {
  const Nodes nodes = {.nodes = 4};
  Process process(restarting(nodes, 0, {"--max-restarts", "1", "--min-ranks", "3"},
                             train("run", {"--steps", "2"})),
                  here());
  EXPECT_EQ(process.wait(), 2);
  EXPECT_NE(process.err().find("--min-ranks 3: the 4 micro-batches of a step cannot be shared"),
            std::string::npos)
      << process.err();
  Process shared(restarting({}, 0, {"--max-restarts", "1", "--min-ranks", "1"},
                            train("run", {"--steps", "2", "--mesh", "shard=2"})),
                 here());
  EXPECT_EQ(shared.wait(), 2);
  EXPECT_NE(
      shared.err().find("--min-ranks 1: fewer than 2 machines with 1 rank each cannot form groups "
                        "of 2 ranks that share a copy of the state"),
      std::string::npos)
      << shared.err();
}

// The other machine never comes.
TEST_F(RestartNodes, AMeshHasFewerCopiesWithFewerMachines) {
  const Arguments options = {"--max-restarts", "1", "--min-ranks", "1"};
  Process alone(restarting({}, 0, options,
                           train("run", {"--steps", "2", "--mesh", "shard=1,replicate=2"}), "2"),
                here());
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_NE(alone.err().find("the run has 1 rank"), std::string::npos) << alone.err();
}

}  // namespace
}  // namespace strata::cli::test

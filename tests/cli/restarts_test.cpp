// SPDX-License-Identifier: Apache-2.0
// `strata launch --max-restarts`: ranks that are killed are started again and end with the bits of
// a run that nothing broke; what would fail again, or was meant, is not; nothing is left behind.
#include "bindings/cli/job_restarts.h"
#include "bindings/cli/run_start.h"
#include "engine/config/options.h"
#include "tests/cli/launched_runs.h"

namespace strata::cli::test {
namespace {

RestartAnswer answer_to(RestartRule& rule, const RanksEnd& end, int64_t step = 0) {
  return rule.answer({.end = end, .host = "there", .step = step}, 4);
}

constexpr RanksEnd kKilledRank = {.code = 128 + SIGKILL, .rank = 2, .signal = SIGKILL};
constexpr RanksEnd kFailedRank = {.code = 4, .rank = 1};

TEST(RestartRule, CountsRestartsAndSaysWhatFailedAndHowItGoesOn) {
  RestartRule rule(2);
  EXPECT_EQ(answer_to(rule, kKilledRank).line,
            "launch: rank 2 (there) was ended by signal 9 (Killed); restart 1 of 2 goes on from "
            "its beginning with 4 ranks");
  const RestartAnswer second = answer_to(rule, kFailedRank, 12);
  EXPECT_TRUE(second.again);
  EXPECT_EQ(second.line,
            "launch: rank 1 (there) ended with exit code 4; restart 2 of 2 goes on from step 12 "
            "with 4 ranks");
  const RestartAnswer third = answer_to(rule, kKilledRank, 14);
  EXPECT_FALSE(third.again);
  EXPECT_NE(third.line.find("after 2 restarts"), std::string::npos) << third.line;
}

TEST(RestartRule, WhatWouldFailAgainOrWasMeantIsNotRestarted) {
  const RanksEnd ends[] = {{.code = 2, .rank = 0},
                           {.code = 3, .rank = 1},
                           {.code = 130, .rank = 0},
                           {.code = 128 + SIGTERM, .rank = 0, .signal = SIGTERM},
                           {.code = 128 + SIGUSR1, .rank = 0, .signal = SIGUSR1}};
  for (const RanksEnd& end : ends) {
    RestartRule rule(5);
    EXPECT_FALSE(answer_to(rule, end).again) << end.text();
  }
}

TEST(RestartRule, AnErrorTwiceFromOneStepIsFinalAndAKillIsNot) {
  RestartRule rule(9);
  EXPECT_TRUE(answer_to(rule, kFailedRank, 4).again);
  EXPECT_TRUE(answer_to(rule, kFailedRank, 6).again);
  EXPECT_FALSE(answer_to(rule, kFailedRank, 6).again);
  RestartRule killed(9);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(answer_to(killed, kKilledRank, 6).again);
}

class RunStarts : public testing::Test {
 protected:
  RunStart start(const Arguments& more) const {
    Arguments args = {"train", "--out", sandbox_ / "run"};
    args.insert(args.end(), more.begin(), more.end());
    config::Options options;
    options.out = sandbox_ / "run";
    for (const std::string& arg : more) {
      if (arg.ends_with("step-000007")) options.resume_checkpoint = arg;
    }
    return {args, options};
  }
  Arguments arguments(const Arguments& more) const {
    Arguments args = {"train", "--out", sandbox_ / "run"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void write(const char* name, const std::string& text) const {
    std::filesystem::create_directories(sandbox_ / "run");
    write_text(sandbox_ / (std::string("run/") + name), text);
  }
  const Sandbox sandbox_;
};

TEST_F(RunStarts, ARunIsResumedOnceAStartHasItsDirectory) {
  const RunStart run = start({"--force", "--accumulate=3", "--steps", "8"});
  EXPECT_EQ(run.arguments({.ranks = 2}),
            arguments({"--force", "--accumulate=3", "--steps", "8", "--ranks", "2"}));
  EXPECT_FALSE(run.has_directory());
  write("run.json", R"({"run": "1"})");
  EXPECT_TRUE(run.has_directory());
  const std::string out = sandbox_ / "run";
  EXPECT_EQ(run.arguments({.ranks = 2, .resumes = true}),
            (Arguments{"train", "--steps", "8", "--out", out, "--resume", "--ranks", "2"}));
  EXPECT_EQ(run.arguments({.ranks = 1, .accumulate = 6, .resumes = true, .changes_ranks = true}),
            (Arguments{"train", "--steps", "8", "--out", out, "--resume", "--force", "--accumulate",
                       "6", "--ranks", "1"}));
  EXPECT_EQ(run.step(), 0);
}

// What is measured anew might choose another mesh, with which the run does not resume.
TEST_F(RunStarts, AsManyRanksKeepTheMeshOfTheRun) {
  const RunStart run = start({"--mesh", "auto", "--steps", "8", "--accumulate", "2"});
  write("run.json", R"({"run": "1"})");
  const std::string out = sandbox_ / "run";
  EXPECT_EQ(run.arguments({.ranks = 4, .resumes = true}),
            (Arguments{"train", "--steps", "8", "--out", out, "--resume", "--ranks", "4"}));
  EXPECT_EQ(run.arguments({.ranks = 2, .resumes = true, .changes_ranks = true}),
            (Arguments{"train", "--mesh", "auto", "--steps", "8", "--accumulate", "2", "--out", out,
                       "--resume", "--force", "--ranks", "2"}));
}

TEST(RunStartMesh, FewerRanksHaveFewerCopiesOfTheStateAndTheSameShards) {
  const Arguments args = {"train", "--mesh", "shard=2,replicate=2,tensor=2"};
  config::Options options;
  options.ranks = 8;
  options.shard_ranks = options.tensor_ranks = 2;
  options.given = {"mesh"};
  const RunStart run(args, options);
  EXPECT_EQ(run.arguments({.ranks = 8}),
            (Arguments{"train", "--mesh", "shard=2,replicate=2,tensor=2", "--ranks", "8"}));
  EXPECT_EQ(run.arguments({.ranks = 4}),
            (Arguments{"train", "--mesh", "shard=2,replicate=1,tensor=2,pipeline=1,context=1",
                       "--ranks", "4"}));
}

TEST(RunStartMesh, ShardsThatAreNotNamedFollowTheRanks) {
  config::Options options;
  options.ranks = options.shard_ranks = 4;
  options.given = {"mesh"};
  EXPECT_FALSE(keeps_shards(options));
  config::Options named = options;
  named.names_shards = true;
  EXPECT_TRUE(keeps_shards(named));
  const RunStart run({"train", "--mesh", "tensor=1"}, options);
  EXPECT_EQ(run.arguments({.ranks = 2}),
            (Arguments{"train", "--mesh", "tensor=1", "--ranks", "2"}));
}

// Stops and goes on with it, and waits until it has.
void signal_child(pid_t child, int signal, const char* state) {
  kill(child, signal);
  while (read_of_process(child, "stat").find(state) == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Pause, OnlyTheTimeOfOneStopCounts) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  Pause pause;
  EXPECT_EQ(pause.look(child, 8), 0);
  signal_child(child, SIGSTOP, ") T ");
  EXPECT_EQ(pause.look(child, 8), 8);
  EXPECT_EQ(pause.look(child, 8), 16);
  signal_child(child, SIGCONT, ") S ");
  signal_child(child, SIGSTOP, ") T ");
  EXPECT_EQ(pause.look(child, 8), 8) << "it has run between two looks";
  signal_child(child, SIGCONT, ") S ");
  EXPECT_EQ(pause.look(child, 8), 0);
  EXPECT_EQ(pause.look(child, 8), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(RunStarts, AnEarlierRunInTheDirectoryIsNotResumed) {
  write("run.json", R"({"run": "1"})");
  const RunStart run = start({"--force"});
  EXPECT_FALSE(run.has_directory());
}

TEST_F(RunStarts, ANamedCheckpointIsNamedUntilLaterOnesAreSetAside) {
  const RunStart run = start({"--resume", "other/step-000007"});
  write("run.json", R"({"run": "1"})");
  EXPECT_FALSE(run.has_directory());
  write("plan.json", "{}");
  EXPECT_TRUE(run.has_directory());
  EXPECT_EQ(run.arguments({.ranks = 2, .resumes = true}),
            (Arguments{"train", "--out", sandbox_ / "run", "--resume", "--ranks", "2"}));
}

class Restarts : public LaunchedRuns {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(sandbox_ / "temporary");
    std::filesystem::create_directory(sandbox_ / "drive");
    setenv("TMPDIR", (sandbox_ / "temporary").c_str(), 1);
    LaunchedRuns::SetUp();
  }
  static Arguments restarting(int restarts, const Arguments& command) {
    Arguments all = {"launch", "--ranks", "2", "--max-restarts", std::to_string(restarts), "--"};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(ranks_of("run").empty());
    for (const char* folder : {"temporary", "drive"}) {
      EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / folder)) << folder;
    }
  }
};

const Arguments kLong = {"--steps", "1000000", "--checkpoint-every", "3",
                         "--nvme",  "drive",   "--offload",          "nvme"};

TEST_F(Restarts, ARunWithTwoKillsHasTheBitsOfOneWithout) {
  Process process(restarting(2, train("run", kLong)), here());
  for (size_t kills = 0; kills < 2; ++kills) {
    ASSERT_TRUE(trains(process, kills + 1)) << process.out() << process.err();
    ASSERT_TRUE(saves_after(newest_step())) << process.err();
    const std::vector<pid_t> ranks = ranks_of("run");
    ASSERT_EQ(ranks.size(), 2u);
    kill(ranks[kills], SIGKILL);
  }
  ASSERT_TRUE(trains(process, 3)) << process.out() << process.err();
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_EQ(count(process.err(), "was ended by signal 9 (Killed); restart"), 2u) << process.err();
  EXPECT_NE(process.err().find("restart 2 of 2 goes on from step"), std::string::npos)
      << process.err();
  expect_nothing_left();
  const std::string steps = std::to_string(newest_step() + 2);
  const std::string broken =
      state_of(launch(2, {"train", "--out", "run", "--resume", "--steps", steps}));
  EXPECT_EQ(broken, state_of(launch(2, train("whole", {"--steps", steps}))));
  EXPECT_NE(losses_of("run"), "");
  EXPECT_EQ(losses_of("run"), losses_of("whole"));
}

// It hears nothing, and the others would give it up after 25 s.
TEST_F(Restarts, AStoppedRankIsEndedWhenAnotherOneIsGone) {
  Process process(restarting(1, train("run", kLong)), here());
  ASSERT_TRUE(trains(process, 1)) << process.err();
  const std::vector<pid_t> ranks = ranks_of("run");
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[0], SIGSTOP);
  kill(ranks[1], SIGKILL);
  ASSERT_TRUE(trains(process, 2)) << process.out() << process.err();
  EXPECT_NE(process.err().find("is paused by a signal: it is killed"), std::string::npos)
      << process.err();
  EXPECT_EQ(process.err().find("does not end"), std::string::npos) << process.err();
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.err();
  expect_nothing_left();
}

TEST_F(Restarts, ARunThatIsNamedOnlyByResumeGoesOn) {
  state_of(launch(2, train("run", {"--steps", "2"})));
  Process process(
      restarting(1, {"train", "--resume", "run", "--steps", "1000000", "--checkpoint-every", "3"}),
      here());
  ASSERT_TRUE(trains(process, 1)) << process.err();
  ASSERT_TRUE(saves_after(2));
  const std::vector<pid_t> ranks = ranks_of("run");
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[0], SIGKILL);
  ASSERT_TRUE(trains(process, 2)) << process.out() << process.err();
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.err();
  expect_nothing_left();
}

TEST_F(Restarts, WhenAllAreUsedTheRunEndsWithTheCodeOfTheRank) {
  Process process(restarting(1, train("run", kLong)), here());
  for (size_t kills = 0; kills < 2; ++kills) {
    ASSERT_TRUE(trains(process, kills + 1)) << process.out() << process.err();
    kill(ranks_of("run").back(), SIGKILL);
  }
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  EXPECT_NE(process.err().find("after 1 restart, the most that --max-restarts allows"),
            std::string::npos)
      << process.err();
  expect_nothing_left();
}

TEST_F(Restarts, ASignalToTheLauncherEndsEverythingAndMistakesAreNotRestarted) {
  Process process(restarting(5, train("run", kLong)), here());
  ASSERT_TRUE(trains(process, 1)) << process.err();
  process.kill(SIGINT);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_EQ(count(process.err(), "restart"), 0u) << process.err();
  Process again(restarting(5, train("run", {"--steps", "4"})), here());
  EXPECT_EQ(again.wait(), 2);
  EXPECT_EQ(count(again.err(), "; restart"), 0u) << again.err();
  expect_nothing_left();
}

// A scheduler warns by SIGUSR1, and sends SIGTERM when the time is over.
TEST_F(Restarts, AWarningWritesACheckpointAndATerminationAfterItDoesNotCutItOff) {
  const Arguments commands[] = {launch(2, train("run", kLong)), train("run", kLong)};
  for (Arguments command : commands) {
    command.emplace_back("--force");
    Process process(command, here());
    ASSERT_TRUE(trains(process, 1)) << process.err();
    process.kill(SIGUSR1);
    process.kill(SIGTERM);
    EXPECT_EQ(process.wait(), 0) << process.err();
    EXPECT_GT(newest_step(), 0);
    expect_nothing_left();
  }
}

TEST_F(Restarts, AWarningToAnyRankWritesACheckpoint) {
  for (const size_t rank : {0u, 1u}) {
    Process process(launch(2, train("run", {"--steps", "1000000", "--force"})), here());
    ASSERT_TRUE(trains(process, 1)) << process.err();
    kill(ranks_of("run")[rank], rank == 0 ? SIGUSR2 : SIGXCPU);
    EXPECT_EQ(process.wait(), 0) << process.err();
    EXPECT_GT(newest_step(), 0);
  }
}

TEST_F(Restarts, OptionsWithoutUseAreRefused) {
  const std::pair<Arguments, const char*> mistakes[] = {
      {{"--ranks", "2", "--min-ranks", "3", "--max-restarts", "1"},
       "--min-ranks 3 is more than the 2 ranks that are started"},
      {{"--ranks", "2", "--min-ranks", "1"}, "--min-ranks has no meaning without --max-restarts"},
      {{"--ranks", "2", "--min-ranks", "1", "--max-restarts", "0"}, "--min-ranks has no effect"}};
  for (const auto& [options, text] : mistakes) {
    Arguments command = {"launch"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", "train"});
    Process process(command, here());
    EXPECT_EQ(process.wait(), 2);
    EXPECT_NE(process.err().find(text), std::string::npos) << process.err();
  }
}

}  // namespace
}  // namespace strata::cli::test

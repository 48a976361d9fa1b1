// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the state of ranks that are threads, one answer to every mistake, and no
// process that outlives the others.
#include "engine/config/json.h"
#include "tests/cli/launched_runs.h"

namespace strata::cli::test {
namespace {

using Launch = LaunchedRuns;

TEST_F(Launch, ProcessesHaveTheStateOfThreads) {
  const Arguments ways[] = {{"--ranks", "2"},
                            {"--ranks", "3", "--nvme", ".", "--offload", "nvme"},
                            {"--ranks", "4", "--shard-ranks", "2", "--zero-stage", "2"},
                            {"--ranks", "4", "--tensor-ranks", "2"},
                            {"--ranks", "2", "--context-ranks", "2"}};
  for (const Arguments& way : ways) {
    SCOPED_TRACE(testing::PrintToString(way));
    Arguments steps = {"--steps", "4", "--force"};
    steps.insert(steps.end(), way.begin() + 2, way.end());
    const std::string processes = state_of(launch(std::stoi(way[1]), train("processes", steps)));
    steps.insert(steps.end(), {"--ranks", way[1]});
    EXPECT_EQ(processes, state_of(train("threads", steps)));
  }
}

// Stages differ, and each process knows the plan of its own alone.
TEST_F(Launch, StagesMoveTheBytesThatThePlanSaid) {
  Arguments stages = {"--steps", "3", "--accumulate", "4", "--json"};
  stages.insert(stages.end(), {"--nvme", ".", "--offload", "nvme"});
  stages.insert(stages.end(), {"--pipeline-ranks", "2", "--pipeline-windows", "4"});
  make_model(sandbox_, "wide", {.layers = 4, .hidden = 96, .vocabulary = 400});
  Arguments all = train("run", stages);
  *std::find(all.begin(), all.end(), "model") = "wide";
  std::string& memory = *std::find(all.begin(), all.end(), "400MiB");
  memory = "1MiB";
  Process refused(launch(2, all), here());
  ASSERT_EQ(refused.wait(), 3) << refused.err();
  memory = std::to_string(least_mib(refused.err())) + "MiB";
  Process run(launch(2, all), here());
  ASSERT_EQ(run.wait(), 0) << run.err();
  std::ifstream file(sandbox_ / "run/plan.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const config::Json said = config::Json::parse(text, "plan.json");
  const config::Json summary = config::Json::parse(run.out(), "train");
  const config::Json& moved = *summary.find("nvme");
  EXPECT_GT(moved.find("step_read_bytes")->int64(), 0);
  EXPECT_EQ(moved.find("step_read_bytes")->int64(), said.find("nvme_read_bytes")->int64());
  EXPECT_EQ(moved.find("step_write_bytes")->int64(), said.find("nvme_write_bytes")->int64());
  EXPECT_EQ(summary.find("step_sent_bytes")->int64(), said.find("sent_bytes")->int64());
}

TEST_F(Launch, AStopWritesACheckpointAndTheRunResumes) {
  Process process(launch(2, train("run", {"--steps", "1000000"})), here());
  ASSERT_TRUE(process.prints("step 1/")) << process.err();
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_NE(process.out().find("next     strata launch --ranks 2 -- train --out run --resume"),
            std::string::npos)
      << process.out();
  int64_t step = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "run/checkpoints")) {
    step = std::max<int64_t>(step, std::stoll(entry.path().filename().string().substr(5)));
  }
  ASSERT_GT(step, 0);
  const std::string steps = std::to_string(step + 2);
  const std::string resumed =
      state_of(launch(2, {"train", "--out", "run", "--resume", "--steps", steps}));
  EXPECT_EQ(resumed, state_of(launch(2, train("whole", {"--steps", steps}))));
}

// As a terminal sends it, to the launching process alone.
TEST_F(Launch, CtrlZPausesTheRanksToo) {
  Process run(launch(2, train("run", {"--steps", "100000"})), here());
  ASSERT_TRUE(run.prints("step 1/")) << run.out() << run.err();
  run.kill(SIGTSTP);
  const auto written = [&] { return std::filesystem::file_size(sandbox_ / "run/metrics.jsonl"); };
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const auto before = written();
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(written(), before);
  run.kill(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_GT(written(), before);
  run.kill(SIGTERM);
  EXPECT_EQ(run.wait(), 0) << run.err();
}

TEST_F(Launch, ARunNamedByResumeGoesOn) {
  state_of(launch(2, train("run", {"--steps", "2"})));
  const std::string resumed = state_of(launch(2, {"train", "--resume", "run", "--steps", "4"}));
  EXPECT_EQ(resumed, state_of(launch(2, train("whole", {"--steps", "4"}))));
}

TEST_F(Launch, ARankThatIsKilledEndsTheOthers) {
  for (const bool first : {true, false}) {
    Process process(launch(3, train("run", {"--steps", "1000000", "--force"})), here());
    ASSERT_TRUE(process.prints("step 1/")) << process.err();
    const std::vector<pid_t> ranks = ranks_of("run");
    ASSERT_EQ(ranks.size(), 3u);
    kill(first ? ranks.front() : ranks.back(), SIGKILL);
    EXPECT_TRUE(all_end("run", 15));
    EXPECT_EQ(process.wait(), 128 + SIGKILL);
    EXPECT_NE(process.err().find("was ended by signal 9"), std::string::npos) << process.err();
  }
}

TEST_F(Launch, RanksEndWithTheProcessThatStartedThem) {
  Process process(launch(2, train("run", {"--steps", "1000000"})), here());
  ASSERT_TRUE(process.prints("step 1/")) << process.err();
  process.kill(SIGKILL);
  process.wait();
  EXPECT_TRUE(all_end("run", 30));
  EXPECT_FALSE(std::filesystem::is_empty(sandbox_ / "run/checkpoints"));
}

TEST_F(Launch, MistakesAreReportedOnce) {
  struct Mistake {
    Arguments arguments;
    int code;
    const char* text;
  };
  const Mistake mistakes[] = {
      {{"launch", "--ranks", "2"}, 2, "launch: no command is given"},
      {{"launch", "--ranks", "2", "train", "--model", "model"}, 2, "launch: -- is missing before"},
      {launch(2, {"eval", "--model", "model"}), 2, "launch: eval: does not run with several ranks"},
      {launch(2, train("run", {"--ranks", "2"})), 2,
       "ranks: strata launch gives it to the command"},
      {launch(2, train("run", {"--stepz", "2"})), 2, "--stepz is not an option"},
      {launch(2, {"train", "--model", "none", "--data", STRATA_TEXT, "--out", "run"}), 2,
       "none: there is no such directory"},
      {launch(2, {"train", "--model", "model", "--data", STRATA_TEXT, "--out", "run",
                  "--host-memory", "32MiB"}),
       3, "does not fit"},
  };
  for (const Mistake& mistake : mistakes) {
    Process process(mistake.arguments, here());
    EXPECT_EQ(process.wait(), mistake.code) << process.err();
    const std::string err = process.err();
    const size_t at = err.find(mistake.text);
    EXPECT_NE(at, std::string::npos) << err;
    EXPECT_EQ(err.find(mistake.text, at + 1), std::string::npos) << err;
    EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run"));
  }
}

}  // namespace
}  // namespace strata::cli::test

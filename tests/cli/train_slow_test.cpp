// SPDX-License-Identifier: Apache-2.0
// The whole program ends in the same state wherever the state lives, whatever moves and computes
// it, and however often the run is stopped or killed on the way.
#include <random>

#include "engine/config/json.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class SameState : public testing::Test {
 protected:
  void SetUp() override {
    make_model(sandbox_, "model", {.layers = 4, .hidden = 96, .vocabulary = 400});
    std::filesystem::create_directory(sandbox_ / "scratch");
  }

  Arguments train(const std::string& out, const Arguments& more) const {
    Arguments all = {"train",        "--model",      "model", "--data",
                     STRATA_TEXT,    "--out",        out,     "--machine",
                     STRATA_MACHINE, "--steps",      "8",     "--sequence-length",
                     "32",           "--accumulate", "2",     "--lr",
                     "1e-3",         "--threads",    "2"};
    for (size_t i = 0; i < more.size(); ++i) {
      const auto given = std::find(all.begin(), all.end(), more[i]);
      if (more[i].starts_with("--") && given != all.end()) {
        *(given + 1) = more[i + 1];
        ++i;
      } else {
        all.push_back(more[i]);
      }
    }
    return all;
  }

  ProcessOptions here() const { return {.directory = sandbox_.path()}; }

  std::string state_after(const std::string& out, const Arguments& more) {
    Process run(train(out, more), here());
    EXPECT_EQ(run.wait(), 0) << run.err();
    last_out_ = run.out();
    return state_in(last_out_);
  }

  // The least host budget that the program names when it refuses a smaller one.
  std::string least_budget(Arguments more) {
    more.insert(more.end(), {"--host-memory", "1MiB"});
    Process refused(train("refused", more), here());
    EXPECT_EQ(refused.wait(), 3) << refused.out();
    return std::to_string(least_mib(refused.err())) + "MiB";
  }

  const Sandbox sandbox_;
  std::string last_out_;
};

TEST_F(SameState, WhereverItLivesAndWhateverMovesIt) {
  const std::string resident = state_after("resident", {});
  ASSERT_EQ(resident.size(), 16u) << resident;
  EXPECT_EQ(last_out_.find("NVMe     "), std::string::npos) << "the first run keeps all in memory";
  EXPECT_EQ(state_after("one-thread", {"--threads", "1"}), resident);
  EXPECT_EQ(state_after("recompute", {"--activations", "recompute"}), resident);

  const Arguments nvme = {"--nvme", "scratch", "--offload", "nvme"};
  const auto offloaded = [&](const std::string& out, const std::string& budget,
                             const Arguments& more) {
    Arguments all = nvme;
    all.insert(all.end(), {"--host-memory", budget});
    all.insert(all.end(), more.begin(), more.end());
    const std::string state = state_after(out, all);
    EXPECT_NE(last_out_.find("\nNVMe     "), std::string::npos) << out << " moved nothing";
    return state;
  };
  const std::string least = least_budget(nvme);
  EXPECT_EQ(offloaded("nvme", least, {}), resident);
  EXPECT_EQ(offloaded("threads", least, {"--io", "threads"}), resident);
  EXPECT_EQ(offloaded("one-core", least_budget({"--nvme", "scratch", "--threads", "1"}),
                      {"--threads", "1"}),
            resident);
  const std::string more = std::to_string(std::stoi(least) + 2) + "MiB";
  EXPECT_EQ(offloaded("more", more, {}), resident);
  EXPECT_EQ(offloaded("depth-1", more, {"--prefetch-depth", "1"}), resident);
  EXPECT_EQ(offloaded("depth-8", least, {"--prefetch-depth", "8"}), resident);
  EXPECT_EQ(offloaded("rate", more, {"--nvme-rate", "40MB,40MB"}), resident);
  EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / "scratch"));
}

TEST_F(SameState, AStepMovesTheBytesThatThePlanSaid) {
  for (const char* recipe : {"fp32", "bf16"}) {
    SCOPED_TRACE(recipe);
    Arguments offloaded = {"--nvme", "scratch", "--offload", "nvme", "--recipe", recipe, "--json"};
    offloaded.insert(offloaded.end(), {"--host-memory", least_budget(offloaded)});
    const Arguments all = train(recipe, offloaded);
    Process run(all, here());
    ASSERT_EQ(run.wait(), 0) << run.err();
    Arguments planned = all;
    planned[0] = "plan";
    const auto out = std::find(planned.begin(), planned.end(), "--out");
    planned.erase(out, out + 2);
    Process plan(planned, here());
    ASSERT_EQ(plan.wait(), 0) << plan.err();
    const config::Json summary = config::Json::parse(run.out(), "train");
    const config::Json said = config::Json::parse(plan.out(), "plan");
    const config::Json& moved = *summary.find("nvme");
    EXPECT_GT(moved.find("step_read_bytes")->int64(), 0);
    EXPECT_EQ(moved.find("step_read_bytes")->int64(), said.find("nvme_read_bytes")->int64());
    EXPECT_EQ(moved.find("step_write_bytes")->int64(), said.find("nvme_write_bytes")->int64());
  }
}

// Frozen weights have no copy on the drive: every step reads them from the model's own files.
TEST_F(SameState, WhereverFrozenWeightsAreRead) {
  const Arguments freeze = {"--freeze", "model\\.layers\\.[0-2]\\..*"};
  const auto frozen = [&](Arguments more) {
    more.insert(more.end(), freeze.begin(), freeze.end());
    return more;
  };
  const std::string resident = state_after("resident", freeze);
  Arguments offloaded = frozen({"--nvme", "scratch", "--offload", "nvme"});
  offloaded.insert(offloaded.end(), {"--host-memory", least_budget(offloaded)});
  EXPECT_EQ(state_after("offloaded", offloaded), resident);
  EXPECT_NE(last_out_.find("\nNVMe     "), std::string::npos) << "moved nothing";

  EXPECT_NE(last_out_.find("frozen weights are read from the model's files"), std::string::npos);

  const std::string of_two = state_after("two", frozen({"--ranks", "2", "--zero-stage", "3"}));
  offloaded = frozen({"--nvme", "scratch", "--offload", "nvme", "--ranks", "2"});
  offloaded.insert(offloaded.end(), {"--host-memory", least_budget(offloaded)});
  EXPECT_EQ(state_after("two-offloaded", offloaded), of_two);
}

// All that is trained fits in memory, so no drive is needed.
TEST_F(SameState, FrozenWeightsThatDoNotFitNeedNoScratch) {
  make_model(sandbox_, "large", {.layers = 6, .hidden = 256, .vocabulary = 400});
  const Arguments last_block = {"--model", "large", "--freeze",
                                "model\\.(embed_tokens|layers\\.[0-4]\\.).*"};
  const std::string resident = state_after("resident", last_block);
  Arguments streamed = last_block;
  streamed.insert(streamed.end(), {"--host-memory", least_budget(last_block)});
  EXPECT_EQ(state_after("streamed", streamed), resident);
  EXPECT_NE(last_out_.find("\nfiles    "), std::string::npos) << last_out_;
  EXPECT_EQ(last_out_.find("\nNVMe     "), std::string::npos) << last_out_;
  EXPECT_EQ(last_out_.find("NVMe 0."), std::string::npos) << "there is no drive\n" << last_out_;
  EXPECT_NE(last_out_.find("frozen weights are read from the model's files"), std::string::npos);
}

// Forward alone reads what does not fit where it is: no --nvme, and nothing is written.
TEST_F(SameState, EvaluationNeedsNoScratch) {
  make_model(sandbox_, "large", {.layers = 6, .hidden = 256, .vocabulary = 400});
  const auto eval = [&](const Arguments& more) {
    Arguments all = {"eval", "--model",           "large", "--data",   STRATA_TEXT, "--threads",
                     "2",    "--sequence-length", "32",    "--recipe", "fp32"};
    all.insert(all.end(), more.begin(), more.end());
    return Process(all, here());
  };
  Process refused = eval({"--offload", "none", "--host-memory", "1MiB"});
  EXPECT_EQ(refused.wait(), 3);
  const int64_t resident_mib = least_mib(refused.err());
  Process resident = eval({"--offload", "none"});
  EXPECT_EQ(resident.wait(), 0) << resident.err();
  Process streamed = eval({"--host-memory", std::to_string(resident_mib - 8) + "MiB"});
  EXPECT_EQ(streamed.wait(), 0) << streamed.err();
  EXPECT_EQ(streamed.out(), resident.out());
}

TEST_F(SameState, OnADeviceOfItsOwn) {
  const std::string resident = state_after("resident", {});
  const Arguments emulated = {"--device", "emulated"};
  EXPECT_EQ(state_after("emulated", emulated), resident);
  EXPECT_EQ(state_after("small-device", {"--device", "emulated", "--device-memory", "12MiB"}),
            resident);
  EXPECT_EQ(state_after("three-tiers", {"--device", "emulated", "--device-memory", "12MiB",
                                        "--nvme", "scratch", "--host-memory", "64MiB"}),
            resident);
}

TEST_F(SameState, StagesOfOneMesh) {
  const std::string stage_0 = state_after("stage-0", {"--ranks", "2", "--zero-stage", "0"});
  for (const char* stage : {"1", "2", "3"}) {
    EXPECT_EQ(state_after("stage-" + std::string(stage), {"--ranks", "2", "--zero-stage", stage}),
              stage_0)
        << stage;
  }
  Arguments offloaded = {"--ranks", "2", "--nvme", "scratch", "--offload", "nvme"};
  const std::string least = least_budget(offloaded);
  offloaded.insert(offloaded.end(), {"--host-memory", least});
  EXPECT_EQ(state_after("offloaded", offloaded), stage_0);
  EXPECT_NE(last_out_.find("\nNVMe     "), std::string::npos) << "nothing moved";
}

TEST_F(SameState, WheneverChunksAreUpdated) {
  const auto state = [&](const std::string& mode) {
    return state_after(mode, {"--clip", "0", "--optimizer-mode", mode});
  };
  EXPECT_EQ(state("in-backward"), state("deferred"));
}

TEST_F(SameState, StoppedAndResumed) {
  const std::string whole = state_after("whole", {"--steps", "400"});
  // A shell and the kernel both send SIGHUP when a terminal closes.
  const std::vector<std::vector<int>> stops = {{SIGTERM}, {SIGINT}, {SIGHUP, SIGHUP}};
  for (const std::vector<int>& signals : stops) {
    const std::string out = "stopped-" + std::to_string(signals[0]);
    Process stopped(train(out, {"--steps", "400"}), here());
    ASSERT_TRUE(stopped.prints("step 1/")) << stopped.err();
    for (const int signal : signals) {
      stopped.kill(signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // not merged into one
    }
    ASSERT_EQ(stopped.wait(), 0) << out << stopped.err();
    EXPECT_NE(stopped.out().find("stopped on request"), std::string::npos) << stopped.out();
    EXPECT_FALSE(std::filesystem::exists(sandbox_ / (out + "/model")));
    EXPECT_EQ(state_after(out, {"--steps", "400", "--resume"}), whole) << out;
  }
}

TEST_F(SameState, ARunUnderNohupOutlivesItsTerminal) {
  ProcessOptions under_nohup = here();
  under_nohup.wrap = {"nohup"};
  Process run(train("run", {"--steps", "60"}), under_nohup);
  ASSERT_TRUE(run.prints("step 1/")) << run.err();
  run.kill(SIGHUP);
  ASSERT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out().find("stopped on request"), std::string::npos) << run.out();
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000060"));
}

TEST_F(SameState, KilledAtAnyTimeAndResumed) {
  const Arguments often = {"--steps", "60",      "--checkpoint-every", "1",
                           "--nvme",  "scratch", "--host-memory",      "64MiB"};
  const std::string whole = state_after("whole", often);
  Arguments resumed = often;
  resumed.emplace_back("--resume");
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  constexpr int kKills = 8;
  int killed = 0;
  for (int i = 0; i < kKills; ++i) {
    Process run(train("killed", resumed), here());
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 700));
    run.kill(SIGKILL);
    killed += run.wait() == 128 + SIGKILL;
  }
  EXPECT_GT(killed, 0) << "every run had ended already";
  EXPECT_EQ(state_after("killed", resumed), whole) << "seed " << kSeed;
  EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / "scratch"));
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "killed/checkpoints")) {
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "manifest.json")) << entry.path();
  }
}

}  // namespace
}  // namespace strata::cli::test

// SPDX-License-Identifier: Apache-2.0
// The whole program on a small model: what each command leaves and prints.
#include <regex>

#include "engine/config/json.h"
#include "engine/model/family.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class Program : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  // Standard output of a run that succeeds.
  std::string run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  }
  std::string train(const Arguments& more) {
    Arguments all = {"train", "--model", "model",     "--data",       STRATA_TEXT,
                     "--out", "run",     "--machine", STRATA_MACHINE, "--sequence-length",
                     "32"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  config::Json json(const std::string& text) { return config::Json::parse(text, "output"); }

  void set_config(const std::string& name, const config::Json& value) {
    const std::string path = sandbox_ / "model/config.json";
    config::Json config = json(read_text(path));
    config.set(name, value);
    write_text(path, config.dump());
  }

  const Sandbox sandbox_;
};

TEST_F(Program, ARunLeavesItsRecordsACheckpointAndAModel) {
  const std::string out = train({"--steps", "3", "--eval-every", "2"});
  EXPECT_NE(out.find("held-out loss"), std::string::npos) << out;
  EXPECT_NE(out.find("\nsaving   a checkpoint every 30 min and at the end"), std::string::npos)
      << out;
  EXPECT_FALSE(state_in(out).empty());
  for (const char* file :
       {"run.json", "plan.txt", "checkpoints/step-000003/manifest.json", "model/config.json",
        "model/model.safetensors", "model/tokenizer.json"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(sandbox_ / ("run/" + std::string(file)))) << file;
  }
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run/run.lock"));
  std::ifstream metrics(sandbox_ / "run/metrics.jsonl");
  int step = 0;
  std::vector<int> evaluated;
  for (std::string line; std::getline(metrics, line);) {
    const config::Json record = json(line);
    if (record.find("eval_loss") != nullptr) {
      EXPECT_EQ(record.find("step")->int64(), step);
      evaluated.push_back(step);
      continue;
    }
    EXPECT_EQ(record.find("step")->int64(), ++step);
    for (const char* name : {"loss", "grad_norm", "lr", "tokens", "step_s", "tokens_per_s", "mfu",
                             "stall_s", "nvme_read_bytes", "nvme_write_bytes", "epoch", "time"}) {
      EXPECT_NE(record.find(name), nullptr) << name;
    }
  }
  EXPECT_EQ(step, 3);
  EXPECT_EQ(evaluated, (std::vector<int>{2, 3}));
}

// A prompt needs a tokenizer, which data of tokens does without.
TEST_F(Program, WhatToTryNextCanBeTried) {
  EXPECT_NE(train({"--steps", "1"}).find("next     strata generate"), std::string::npos);
  const std::string spaced =
      run({"train", "--model", "model", "--data", STRATA_TEXT, "--out", "my run", "--machine",
           STRATA_MACHINE, "--sequence-length", "32", "--steps", "1"});
  EXPECT_NE(spaced.find("next     strata generate --model 'my run/model' --prompt"),
            std::string::npos)
      << spaced;
  std::filesystem::remove(sandbox_ / "model/tokenizer.json");
  write_tokens(sandbox_ / "tokens.bin");
  const std::string out =
      run({"train", "--model", "model", "--data", "tokens.bin", "--out", "other", "--machine",
           STRATA_MACHINE, "--sequence-length", "32", "--steps", "1"});
  EXPECT_NE(out.find("\nmodel    other/model"), std::string::npos) << out;
  EXPECT_EQ(out.find("strata generate"), std::string::npos) << out;
}

TEST_F(Program, CtrlCIsAnsweredAtOnce) {
  Process run({"train", "--model", "model", "--data", STRATA_TEXT, "--out", "run", "--machine",
               STRATA_MACHINE, "--sequence-length", "32", "--steps", "1000000"},
              {.directory = sandbox_.path()});
  ASSERT_TRUE(run.prints("step 1/")) << run.err();
  run.kill(SIGINT);
  EXPECT_TRUE(
      run.prints_error("stop requested: the run finishes what it has begun, two steps at most"))
      << run.err();
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_NE(run.out().find("stopped on request"), std::string::npos) << run.out();
}

// Heap that malloc reserved and nobody touched is no memory.
TEST_F(Program, TheMemoryThatIsCountedIsWhatTheKernelCounts) {
  const config::Json memory = *json(train({"--steps", "3", "--json"})).find("memory");
  const int64_t counted = *memory.find("counted_bytes")->int64();
  const int64_t kernel = *memory.find("kernel_peak_bytes")->int64();
  EXPECT_LE(counted, kernel + (1 << 20));
  EXPECT_GT(counted, kernel / 2) << "the peak may be before or after the steps";
}

// The frozen weights of the first stage come from the model's files.
TEST_F(Program, TheSummaryNamesTheBackendOfAStageThatHasDrives) {
  make_model(sandbox_, "deep", {.layers = 4, .hidden = 256});
  Arguments all = {"train",
                   "--model",
                   "deep",
                   "--data",
                   STRATA_TEXT,
                   "--out",
                   "run",
                   "--machine",
                   STRATA_MACHINE,
                   "--sequence-length",
                   "64",
                   "--steps",
                   "1",
                   "--ranks",
                   "2",
                   "--pipeline-ranks",
                   "2",
                   "--pipeline-chunks",
                   "1",
                   "--accumulate",
                   "4",
                   "--nvme",
                   ".",
                   "--freeze",
                   R"(model\.(layers\.[01]|embed).*)",
                   "--host-memory",
                   "1MiB"};
  std::string out;
  for (int tries = 0; tries < 3 && out.empty(); ++tries) {
    Process process(all, {.directory = sandbox_.path()});
    if (process.wait() == 0) out = process.out();
    if (out.empty()) all.back() = std::to_string(least_mib(process.err()) + 4) + "MiB";
  }
  ASSERT_NE(out.find("\nnvme     0 B of "), std::string::npos) << "rank 0 must have nothing there\n"
                                                               << out;
  const std::regex line("\nNVMe .* read .all verified.*; by (io_uring|threads)\n");
  EXPECT_TRUE(std::regex_search(out, line)) << out;
}

TEST_F(Program, ForceStartsOverWithoutWhatWasThere) {
  train({"--steps", "4", "--checkpoint-every", "1", "--keep-checkpoints", "9"});
  train({"--steps", "2", "--force"});
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000002"));
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000004"));
}

TEST_F(Program, AResumeFromAnEarlierStepLeavesTheLaterOnes) {
  const Arguments often = {"--steps", "4", "--checkpoint-every", "1", "--keep-checkpoints", "2"};
  const std::string first = train(often);
  Arguments again = often;
  again.insert(again.end(), {"--resume", "run/checkpoints/step-000003", "--force"});
  EXPECT_EQ(state_in(train(again)), state_in(first));

  // The state, the model and the records are those of the step that is asked for.
  Arguments back = {"--steps", "3", "--resume", "run/checkpoints/step-000003"};
  Process refused(
      {"train", "--out", "run", "--steps", "3", "--resume", "run/checkpoints/step-000003"},
      {.directory = sandbox_.path()});
  EXPECT_EQ(refused.wait(), 2) << refused.out();
  back.emplace_back("--force");
  train(back);
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000004"));
  run({"export", "--model", "model", "--resume", "run/checkpoints/step-000003", "--out", "third"});
  EXPECT_EQ(read_text(sandbox_ / "run/model/model.safetensors"),
            read_text(sandbox_ / "third/model.safetensors"));
  EXPECT_EQ(read_text(sandbox_ / "run/metrics.jsonl").find("{\"step\": 4"), std::string::npos);
  Arguments forward = often;
  forward.emplace_back("--resume");
  EXPECT_EQ(state_in(train(forward)), state_in(first));

  Arguments nothing_left = often;
  nothing_left.emplace_back("--resume");
  const std::string summary = read_text(sandbox_ / "run/summary.json");
  std::filesystem::remove_all(sandbox_ / "run/model");  // as if killed before the export
  const std::string last = train(nothing_left);
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/model/model.safetensors"));
  EXPECT_NE(last.find("nothing to do"), std::string::npos) << last;
  EXPECT_EQ(state_in(last), state_in(first));
  EXPECT_EQ(read_text(sandbox_ / "run/summary.json"), summary) << "of the steps that were done";
}

// Until it has a checkpoint of its own, a run goes on from the one that it began with.
TEST_F(Program, ARunThatBeganWithAnothersCheckpointNeverStartsOver) {
  const Arguments often = {"--steps", "4", "--checkpoint-every", "1", "--lr", "1e-2"};
  const std::string first = train(often);
  Process killed({"train", "--out", "other", "--resume", "run/checkpoints/step-000003", "--steps",
                  "1000000", "--checkpoint-every", "1000000"},
                 {.directory = sandbox_.path()});
  ASSERT_TRUE(killed.prints("step 4/")) << killed.err();
  killed.kill(SIGKILL);
  killed.wait();
  ASSERT_FALSE(std::filesystem::exists(sandbox_ / "other/checkpoints"));
  const std::string again = run({"train", "--out", "other", "--resume", "--steps", "4"});
  EXPECT_NE(again.find("resume   from "), std::string::npos) << again;
  EXPECT_EQ(state_in(again), state_in(first));
}

TEST_F(Program, TwoRunsAreNotMixedInADirectory) {
  const Arguments often = {"--steps", "4", "--checkpoint-every", "1"};
  train(often);
  run({"train", "--model", "model", "--data", STRATA_TEXT, "--out", "other", "--machine",
       STRATA_MACHINE, "--sequence-length", "32", "--steps", "2", "--checkpoint-every", "1"});
  Arguments resumed = {"train", "--out", "other", "--resume", "run/checkpoints/step-000003"};
  Process refused(resumed, {.directory = sandbox_.path()});
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_NE(refused.err().find("is of another run, but other has checkpoints up to step 2"),
            std::string::npos)
      << refused.err();
  resumed.emplace_back("--force");
  run(resumed);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "other/checkpoints")) {
    names.push_back(entry.path().filename());
  }
  EXPECT_EQ(names, std::vector<std::string>{"step-000004"});
  std::ifstream metrics(sandbox_ / "other/metrics.jsonl");
  std::string record;
  std::getline(metrics, record);
  EXPECT_EQ(json(record).find("step")->int64(), 4) << "records of the other run";
}

TEST_F(Program, WhatIsNoPartOfTheModelOfARunIsNotDeleted) {
  namespace fs = std::filesystem;
  train({"--steps", "2"});
  fs::create_directory(sandbox_ / "of a user");
  const auto expect_refused = [&](const std::string& name) {
    Process resumed({"train", "--out", "run", "--resume", "--steps", "3"},
                    {.directory = sandbox_.path()});
    EXPECT_EQ(resumed.wait(), 2) << resumed.out();
    EXPECT_NE(resumed.err().find("would delete " + name), std::string::npos) << resumed.err();
    EXPECT_TRUE(fs::is_symlink(sandbox_ / ("run/model/" + name)) ||
                fs::exists(sandbox_ / ("run/model/" + name)));
    fs::remove_all(sandbox_ / ("run/model/" + name));
  };
  fs::create_directory(sandbox_ / "run/model/results");
  expect_refused("results");
  write_text(sandbox_ / "run/model/small.gguf", "weights");
  Process idle({"train", "--out", "run", "--resume"}, {.directory = sandbox_.path()});
  EXPECT_EQ(idle.wait(), 0) << idle.err();  // it has no steps left, and changes nothing
  expect_refused("small.gguf");
  fs::create_directory_symlink(sandbox_ / "of a user", sandbox_ / "run/model/link");
  expect_refused("link");
  Process resumed({"train", "--out", "run", "--resume", "--steps", "3"},
                  {.directory = sandbox_.path()});
  EXPECT_EQ(resumed.wait(), 0) << resumed.err();
}

TEST_F(Program, ACheckpointIsTheModelThatWasExported) {
  train({"--steps", "2", "--lr", "1e-2"});
  const Arguments data = {"--data", STRATA_TEXT, "--sequence-length", "32", "--json"};
  const auto loss = [&](Arguments arguments) {
    arguments.insert(arguments.end(), data.begin(), data.end());
    return json(run(arguments)).find("loss")->number().value();
  };
  const double of_model = loss({"eval", "--model", "run/model"});
  EXPECT_EQ(loss({"eval", "--model", "model", "--resume", "run/checkpoints/step-000002"}),
            of_model);
  EXPECT_NE(loss({"eval", "--model", "model"}), of_model);

  run({"export", "--model", "model", "--resume", "run/checkpoints/step-000002", "--out", "again"});
  EXPECT_EQ(read_text(sandbox_ / "again/model.safetensors"),
            read_text(sandbox_ / "run/model/model.safetensors"));
}

TEST_F(Program, PlanAnswersWithoutWeights) {
  std::filesystem::remove(sandbox_ / "model/model.safetensors");
  const config::Json plan =
      json(run({"plan", "--model", "model", "--machine", STRATA_MACHINE, "--json"}));
  EXPECT_TRUE(plan.is_object());
  EXPECT_FALSE(plan.members().empty());
}

TEST_F(Program, DoctorLooksAtTheScratchDirectory) {
  Process doctor({"doctor", "--nvme", ".", "--json"}, {.directory = sandbox_.path()});
  doctor.wait();
  const config::Json lines = json(doctor.out());
  int about_scratch = 0;
  for (const config::Json& line : lines.items())
    about_scratch += line.find("subject")->string() == ".";
  EXPECT_GE(about_scratch, 3);
}

TEST_F(Program, ModelsListsEveryFamily) {
  const config::Json all = json(run({"models", "--json"}));
  const std::string text = run({"models"});
  ASSERT_EQ(all.find("families")->items().size(), model::families().size());
  for (size_t i = 0; i < model::families().size(); ++i) {
    const config::Json& one = all.find("families")->items()[i];
    EXPECT_EQ(one.find("architecture")->string(), model::families()[i].architecture);
    EXPECT_GE(one.find("features")->items().size(), 4u);
    EXPECT_NE(text.find(model::families()[i].architecture), std::string::npos);
  }
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "blanks at the end of a line";
}

TEST_F(Program, EveryCommandHasHelp) {
  for (const char* command : {"init", "train", "eval", "plan", "doctor", "export", "generate",
                              "tokenize", "models", "bench"}) {
    EXPECT_NE(run({command, "--help"}).find("sage"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace strata::cli::test

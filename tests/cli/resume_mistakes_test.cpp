// SPDX-License-Identifier: Apache-2.0
// A run that goes on is the run that was: what would change it is refused with both values, what a
// user may change is told, damage in the newest checkpoint costs its steps only, and a reader who
// goes does not end it.
#include <fmt/format.h>

#include <regex>

#include "engine/config/json.h"
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

constexpr const char* kNewest = "run/checkpoints/step-000002";

// The run of make_run(), one step further.
Arguments resumed(const Arguments& more) {
  Arguments all = more;
  all.emplace_back("--resume");
  if (std::find(all.begin(), all.end(), "--steps") == all.end()) {
    all.insert(all.end(), {"--steps", "3"});
  }
  all = train(all);
  all[4] = "run";
  return all;
}

TEST_F(Mistakes, ResumesThatWouldNotGoOnExactly) {
  make_run();
  const auto other_text = [](const Sandbox& sandbox) {
    write_text(sandbox / "other.txt", read_text(STRATA_TEXT) + " And one line more.");
  };
  const auto changed_text = [](const Sandbox& sandbox) {
    std::string text = read_text(STRATA_TEXT);
    const size_t at = text.find("the");
    text.replace(at, 3, "hte");
    write_text(sandbox / "changed.txt", text);
  };
  const std::vector<std::string> both = {"checkpoint: ", "would not continue the same run",
                                         "--force"};
  const auto says = [&](const Arguments& more) {
    std::vector<std::string> all = both;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refusals({
      {"seed", {}, resumed({"--seed", "7"}), kUsage, says({"--seed 7 (checkpoint: 0)"})},
      {"order", {}, resumed({"--shuffle", "off"}), kUsage, says({"--shuffle off (check"})},
      {"rows", {}, resumed({"--micro-batch", "2"}), kUsage, says({"--micro-batch 2 (check"})},
      {"micro-batches",
       {},
       resumed({"--accumulate", "4"}),
       kUsage,
       says({"--accumulate 4 (check"})},
      {"ranks", {}, resumed({"--ranks", "2"}), kUsage, says({"--ranks 2 (checkpoint: 1)"})},
      {"length",
       {},
       resumed({"--sequence-length", "16"}),
       kUsage,
       says({"--sequence-length 16 (checkpoint: 32)"})},
      {"all at once",
       {},
       resumed({"--seed", "7", "--micro-batch", "2"}),
       kUsage,
       says({"--seed 7", "--micro-batch 2"})},
      {"more data", other_text, resumed({"--data", "other.txt"}), kUsage, says({"--data has"})},
      {"other data", changed_text, resumed({"--data", "changed.txt"}), kUsage,
       says({"--data has"})},
      {"a file of the run",
       {},
       {"train", "--out", "run", "--resume", "run/metrics.jsonl"},
       kUsage,
       {"run/metrics.jsonl: it is a file, not a checkpoint; the newest is"}},
      {"samples held out",
       {},
       resumed({"--eval-every", "1"}),
       kUsage,
       says({"another number of samples is left to train on"})},
  });
}

// Frozen weights are in no checkpoint, so those of another model would go unnoticed.
TEST_F(Mistakes, FrozenWeightsOfAnotherModel) {
  make_model(sandbox_, "other", {.seed = 7});
  Arguments frozen = train({"--freeze", "model\\.layers\\.0\\..*"});
  frozen[4] = "run";
  Process run(frozen, {.directory = sandbox_.path()});
  ASSERT_EQ(run.wait(), 0) << run.err();
  const auto with = [](Arguments command, const std::string& model) {
    command.insert(command.end(), {"--model", model, "--resume", kNewest});
    return command;
  };
  Arguments further = resumed({"--freeze", "model\\.layers\\.0\\..*"});
  further[2] = "other";
  const Arguments eval = {"eval", "--data", STRATA_TEXT, "--sequence-length", "32"};
  const Arguments generate = {"generate", "--max-new-tokens", "2"};
  const Arguments to_model = {"export", "--out", "out"};
  const std::vector<std::string> says = {"--model other has other frozen weights, hash "};
  expect_refusals({
      {"resume", {}, further, kUsage, says},
      {"eval", {}, with(eval, "other"), kUsage, says},
      {"generate", {}, with(generate, "other"), kUsage, says},
      {"export", {}, with(to_model, "other"), kUsage, says},
  });
  const config::Json manifest =
      config::Json::parse(read_text(sandbox_ / (std::string(kNewest) + "/manifest.json")), "it");
  const config::Json* weights = manifest.find("trainer")->find("frozen_weights");
  EXPECT_EQ(weights->find("files")->string().size(), 16u) << "they would be read at every resume";
  std::filesystem::rename(sandbox_ / "good", sandbox_ / "elsewhere");
  further[2] = "elsewhere";
  for (const Arguments& fine : {with(eval, "elsewhere"), with(generate, "elsewhere"),
                                with(to_model, "elsewhere"), further}) {
    Process used(fine, {.directory = sandbox_.path()});
    EXPECT_EQ(used.wait(), 0) << fine[0] << used.err();
  }
}

TEST_F(Mistakes, WhatAResumeMayChangeIsTold) {
  make_run();
  Process allowed(resumed({"--lr", "1e-3", "--threads", "1", "--host-memory", "512MiB"}),
                  {.directory = sandbox_.path()});
  EXPECT_EQ(allowed.wait(), 0) << allowed.err();
  for (const char* text : {"--lr 0.001 (checkpoint: 5e-05)", "--steps 3 (checkpoint: 2)",
                           "--threads 1 (checkpoint: not given)", "--host-memory"}) {
    EXPECT_NE(allowed.err().find(text), std::string::npos) << text << " in\n" << allowed.err();
  }
  Process forced(resumed({"--seed", "7", "--steps", "4", "--force"}),
                 {.directory = sandbox_.path()});
  EXPECT_EQ(forced.wait(), 0) << forced.err();
  EXPECT_NE(forced.err().find("this does not continue the same run: --seed 7"), std::string::npos)
      << forced.err();
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000004"));
}

// What is not given is as it was in the run, and not the default.
TEST_F(Mistakes, AResumeTakesTheOptionsOfItsRun) {
  Arguments first = train({"--lr", "3e-3", "--weight-decay", "0.1", "--threads", "1",
                           "--host-memory", "512MiB", "--epochs", "1", "--warmup-steps", "1"});
  first[4] = "run";
  first.erase(std::find(first.begin(), first.end(), "--steps"), first.end());
  Process run(first, {.directory = sandbox_.path()});
  ASSERT_EQ(run.wait(), 0) << run.err();
  const auto options = [&] {
    return config::Json::parse(read_text(sandbox_ / "run/run.json"), "it").find("options")->dump();
  };
  const std::string before = options();
  Process nothing({"train", "--out", "run", "--resume"}, {.directory = sandbox_.path()});
  EXPECT_EQ(nothing.wait(), 0) << nothing.err();
  EXPECT_NE(nothing.out().find("nothing to do"), std::string::npos) << nothing.out();
  EXPECT_EQ(nothing.err(), "");
  EXPECT_EQ(options(), before);
  Process fewer({"train", "--out", "run", "--resume", "--steps", "1"},
                {.directory = sandbox_.path()});
  EXPECT_EQ(fewer.wait(), 2) << fewer.out();
  EXPECT_NE(fewer.err().find("--steps 1 is fewer than the "), std::string::npos) << fewer.err();
  EXPECT_EQ(options(), before);
  Process more({"train", "--out", "run", "--resume", "--steps", "300", "--lr", "2e-3"},
               {.directory = sandbox_.path()});
  ASSERT_TRUE(more.prints_error("resume: from here on ")) << more.out();
  more.kill(SIGKILL);
  EXPECT_EQ(more.err().substr(0, more.err().find('\n')),
            "resume: from here on --steps 300 (checkpoint: not given), --epochs not given "
            "(checkpoint: 1.0), --lr 0.002 (checkpoint: 0.003)");
}

// Runs were made before records were packed by default, and do not say what their samples are.
TEST_F(Mistakes, ARunThatDoesNotSayWhatASampleIsGoesOnWithAStream) {
  std::string records;
  for (int k = 0; k < 60; ++k) {
    records += fmt::format("{{\"prompt\":\"ship {}\",\"completion\":\" pier {}\"}}\n", k, k % 7);
  }
  write_text(sandbox_ / "ships.jsonl", records);
  Arguments first = train({"--data", "ships.jsonl", "--samples", "stream"});
  first[4] = "run";
  Process run(first, {.directory = sandbox_.path()});
  ASSERT_EQ(run.wait(), 0) << run.err();
  std::string about = read_text(sandbox_ / "run/run.json");
  const std::regex samples("\"samples\": *\"stream\",");
  ASSERT_TRUE(std::regex_search(about, samples)) << about;
  write_text(sandbox_ / "run/run.json", std::regex_replace(about, samples, ""));
  Process more({"train", "--resume", "run", "--steps", "5"}, {.directory = sandbox_.path()});
  EXPECT_EQ(more.wait(), 0) << more.err();
  EXPECT_EQ(more.out().find("without seeing each other"), std::string::npos) << more.out();
}

TEST_F(Mistakes, ACheckpointInARunGoesOnWithThatRun) {
  make_run();
  Process more(
      {"train", "--resume", std::string(kNewest) + "/", "--steps", "3", "--keep-checkpoints", "7"},
      {.directory = sandbox_.path()});
  EXPECT_EQ(more.wait(), 0) << more.err();
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000003"));
  EXPECT_NE(more.err().find("--keep-checkpoints 7 (checkpoint: 2)"), std::string::npos)
      << more.err();
}

TEST_F(Mistakes, ARunIsResumedFromAnotherDirectory) {
  make_run();
  std::filesystem::create_directory(sandbox_ / "elsewhere");
  Process more({"train", "--resume", "../run", "--steps", "3"},
               {.directory = sandbox_ / "elsewhere"});
  EXPECT_EQ(more.wait(), 0) << more.err();
  EXPECT_EQ(more.err().find("--model"), std::string::npos) << more.err();
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000003"));
}

// As when a signal came during the evaluation of the last step.
TEST_F(Mistakes, TheEvaluationOfTheLastStepIsMadeUpFor) {
  Arguments first = train({"--eval-every", "2", "--keep-best", "on"});
  first[4] = "run";
  Process run(first, {.directory = sandbox_.path()});
  ASSERT_EQ(run.wait(), 0) << run.err();
  const std::string metrics = read_text(sandbox_ / "run/metrics.jsonl");
  const size_t last = metrics.rfind("{\"step\"", metrics.rfind("eval_loss"));
  ASSERT_NE(last, std::string::npos) << metrics;
  write_text(sandbox_ / "run/metrics.jsonl", metrics.substr(0, last));
  Process again({"train", "--resume", "run"}, {.directory = sandbox_.path()});
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_NE(again.out().find("step 2 was evaluated, which a stop had prevented"), std::string::npos)
      << again.out();
  EXPECT_NE(read_text(sandbox_ / "run/metrics.jsonl").find("eval_loss"), std::string::npos);
  Process nothing({"train", "--resume", "run"}, {.directory = sandbox_.path()});
  EXPECT_EQ(nothing.wait(), 0) << nothing.err();
  EXPECT_NE(nothing.out().find("nothing to do"), std::string::npos) << nothing.out();
}

TEST_F(Mistakes, ATrainedModelIsNotDeletedWhereItsCheckpointsAreNotThere) {
  namespace fs = std::filesystem;
  make_run();
  fs::rename(sandbox_ / "run/checkpoints", sandbox_ / "elsewhere");
  const Arguments again = {"train", "--out", "run", "--resume", "--steps", "9"};
  const auto expect_refused = [&](const char* name, int code, const char* says) {
    expect_refusal({name, {}, again, code, {says}});
  };
  expect_refused("no checkpoints", kUsage, "has no checkpoint, only run/model, the model that it");
  fs::create_directory_symlink("gone", sandbox_ / "run/checkpoints");
  expect_refused("drive that is not mounted", kFailed, "run/checkpoints: it is a broken link");
  fs::remove(sandbox_ / "run/checkpoints");
  fs::create_directory_symlink(sandbox_ / "elsewhere", sandbox_ / "run/checkpoints");
  const std::string newest = sandbox_ / kNewest;
  fs::rename(newest, sandbox_ / "moved");
  fs::create_directory_symlink("nowhere", newest);
  expect_refused("newest checkpoint on a drive that is not mounted", kFailed, "is a broken link");
  fs::remove(newest);
  fs::create_directory_symlink(sandbox_ / "moved", newest);
  Process on(again, {.directory = sandbox_.path()});
  EXPECT_EQ(on.wait(), 0) << on.err();
  EXPECT_NE(on.out().find("resume   from run/checkpoints/step-"), std::string::npos) << on.out();
  EXPECT_TRUE(fs::exists(sandbox_ / "moved/manifest.json"));
}

TEST_F(Mistakes, ADamagedBlockCostsOneCheckpoint) {
  const auto names = [&] {
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "run/checkpoints")) {
      all += entry.path().filename().string() + " ";
    }
    return all;
  };
  make_run();
  Process whole(resumed({"--checkpoint-every", "1"}), {.directory = sandbox_.path()});
  ASSERT_EQ(whole.wait(), 0) << whole.err();
  const std::string newest = "run/checkpoints/step-000003";
  const std::string file = sandbox_ / (newest + "/state-rank00000.bin");
  const std::string trained = read_text(sandbox_ / "run/model/model.safetensors");
  std::string bytes = read_text(file);
  bytes[bytes.size() / 8] ^= 0x40;
  write_text(file, bytes);
  Process killed(resumed({"--steps", "1000000", "--checkpoint-every", "1000000"}),
                 {.directory = sandbox_.path()});
  ASSERT_TRUE(killed.prints("step 3/")) << killed.err();
  killed.kill(SIGKILL);
  killed.wait();
  for (const std::string& text :
       {newest + "/state-rank00000.bin at byte", "resuming from " + std::string(kNewest)}) {
    EXPECT_NE(killed.err().find(text), std::string::npos) << text << " in\n" << killed.err();
  }
  EXPECT_NE(names().find("step-000003.aside-"), std::string::npos) << names();
  // The model has what the checkpoint has lost.
  const std::string aside = sandbox_ / "run/model.aside";
  EXPECT_TRUE(read_text(aside + "/model.safetensors") == trained);
  Process again(resumed({"--checkpoint-every", "1"}), {.directory = sandbox_.path()});
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_EQ(names().find("aside"), std::string::npos) << names();
  EXPECT_FALSE(std::filesystem::exists(aside));
  EXPECT_TRUE(read_text(sandbox_ / "run/model/model.safetensors") == trained);
  EXPECT_EQ(state_in(again.out()), state_in(whole.out()));
}

TEST_F(Mistakes, AReaderWhoGoesDoesNotEndARun) {
  Arguments arguments = train({"--steps", "5"});
  arguments[4] = "run";
  Process run(arguments, {.directory = sandbox_.path(),
                          .wrap = {"bash", "-c", "set -o pipefail; \"$@\" | true", "bash"}});
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_NE(run.err().find("standard output is gone"), std::string::npos) << run.err();
  EXPECT_FALSE(state_in(run.err()).empty());
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000005/manifest.json"));
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/model/model.safetensors"));
}

// Sums have another order with other instructions. oneDNN's variable takes away what it may use.
TEST_F(Mistakes, AResumeWithOtherInstructionsNeedsForce) {
  make_run();
  const auto process = [&](const Arguments& more) {
    setenv("DNNL_MAX_CPU_ISA", "SSE41", 1);
    Process started(resumed(more), {.directory = sandbox_.path()});
    unsetenv("DNNL_MAX_CPU_ISA");
    return started.wait() == 0 ? started.out() + started.err() : "refused: " + started.err();
  };
  const std::string refused = process({});
  EXPECT_TRUE(refused.starts_with("refused: ")) << refused;
  EXPECT_NE(refused.find("with SSE4.1 (checkpoint: of "), std::string::npos) << refused;
  const std::string forced = process({"--force"});
  EXPECT_NE(forced.find("this does not continue the same run: arithmetic of "), std::string::npos)
      << forced;
}

}  // namespace
}  // namespace strata::cli::test

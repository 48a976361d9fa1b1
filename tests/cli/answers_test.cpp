// SPDX-License-Identifier: Apache-2.0
// What the program answers in forms that others read: JSON with fixed names on a standard output
// that holds nothing else, and one configuration file for plan and train.
#include "engine/config/json.h"
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

class Answers : public Mistakes {
 protected:
  std::string run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    err_ = process.err();
    return process.out();
  }
  config::Json json(const Arguments& arguments) {
    return config::Json::parse(run(arguments), "standard output");
  }
  void expect_members(const config::Json& json, const std::vector<const char*>& names) {
    for (const char* name : names) EXPECT_NE(json.find(name), nullptr) << name;
  }
  std::string err_;
};

TEST_F(Answers, OfTrain) {
  Arguments arguments = train({"--json", "--eval-every", "1"});
  arguments[4] = "run";
  const config::Json summary = json(arguments);
  expect_members(summary, {"steps",
                           "first_step",
                           "last_step",
                           "stopped",
                           "total_s",
                           "first_loss",
                           "last_loss",
                           "held_out_loss",
                           "tokens",
                           "tokens_per_s",
                           "tokens_per_s_of_rank",
                           "mfu",
                           "median_step_s",
                           "predicted_step_s",
                           "busy_s",
                           "nvme",
                           "compute_stall_s",
                           "memory",
                           "checkpoint",
                           "state_hash",
                           "model"});
  EXPECT_EQ(summary.find("last_step")->int64(), 2);
  expect_members(*summary.find("memory"), {"arena_bytes", "counted_bytes", "kernel_peak_bytes"});
  EXPECT_NE(err_.find("held-out loss"), std::string::npos) << "progress is on standard error";

  arguments.emplace_back("--resume");
  const config::Json again = json(arguments);
  EXPECT_EQ(again.find("steps")->int64(), 0);
  EXPECT_TRUE(again.find("last_loss")->is_null());
  EXPECT_EQ(again.find("state_hash")->string(), summary.find("state_hash")->string());
}

TEST_F(Answers, HelpIsAskedForInTwoWays) {
  EXPECT_EQ(run({"help"}), run({"--help"}));
  EXPECT_EQ(run({"help", "train"}), run({"train", "--help"}));
  EXPECT_EQ(run({"help", "bench"}), run({"bench", "--help"}));
  EXPECT_EQ(run({"help", "bench", "io"}), run({"bench", "io", "--help"}));
  EXPECT_EQ(run({"help", "completion"}), run({"completion", "--help"}));
}

TEST_F(Answers, ThatCannotBeWrittenAreAFailure) {
  const Arguments plan = {"plan", "--model", "good", "--machine", STRATA_MACHINE};
  const Arguments eval = {"eval",      "--model",           "good", "--data",
                          STRATA_TEXT, "--sequence-length", "32"};
  const Arguments generate = {"generate", "--model", "good", "--max-new-tokens", "2"};
  const auto into = [&](const std::string& sink, const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path(),
                                .wrap = {"bash", "-c", "set -o pipefail; \"$@\" " + sink, "bash"}});
    const int code = process.wait();
    err_ = process.err();
    return code;
  };
  const Arguments tokenize = {"tokenize", "--model", "good", "--text", "A ship"};
  for (const Arguments& arguments : {plan, eval, generate, tokenize, Arguments{"models"}}) {
    SCOPED_TRACE(arguments[0]);
    for (const char* sink : {"> /dev/full", ">&-"}) {
      EXPECT_EQ(into(sink, arguments), kFailed) << err_;
      EXPECT_NE(err_.find("standard output: incomplete"), std::string::npos) << err_;
    }
    EXPECT_EQ(into("| true", arguments), 0) << err_;
  }
}

TEST_F(Answers, OfClosedStreamsGoIntoNoFileOfTheRun) {
  Process process(
      train({"--steps", "1000000"}),
      {.directory = sandbox_.path(), .wrap = {"bash", "-c", "exec \"$@\" <&- >&- 2>&-", "bash"}});
  while (!process.is_over() && !std::filesystem::exists(sandbox_ / "out/metrics.jsonl")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const int stream : {0, 1, 2}) EXPECT_EQ(process.file_of(stream), "/dev/null");
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
}

TEST_F(Answers, OfTheOtherCommands) {
  expect_members(
      json({"plan", "--model", "good", "--machine", STRATA_MACHINE, "--json", "--explain"}),
      {"parameters", "placement", "host", "outside_bytes", "predicted_step_s", "bottleneck",
       "busy_s", "nvme_read_bytes", "nvme_write_bytes", "file_read_bytes"});
  EXPECT_NE(err_.find("forward"), std::string::npos) << "ops are on standard error";
  const config::Json compared = json({"plan", "--model", "good", "--machine", STRATA_MACHINE,
                                      "--compare", STRATA_MACHINE, "--steps", "10", "--json"});
  expect_members(compared, {"run", "compared", "state_bytes_per_parameter"});
  EXPECT_EQ(compared.find("run")->find("steps")->int64(), 10);
  for (const config::Json& row : compared.find("compared")->items()) {
    expect_members(row, {"kind", "name", "remark", "is_planned", "refused", "predicted_step_s",
                         "predicted_tokens_per_s", "bottleneck", "nvme_write_bytes"});
  }
  expect_members(json({"eval", "--model", "good", "--data", STRATA_TEXT, "--json"}),
                 {"loss", "perplexity", "tokens"});
  const config::Json text = json(
      {"generate", "--model", "good", "--prompt", "A ship", "--max-new-tokens", "3", "--json"});
  EXPECT_EQ(text.find("text")->string().rfind("A ship", 0), 0u);
  EXPECT_LE(text.find("new_tokens")->int64().value_or(99), 3);
  expect_members(json({"init", "--data", STRATA_TEXT, "--out", "made", "--vocab-size", "300",
                       "--hidden", "32", "--heads", "4", "--layers", "1", "--json"}),
                 {"model", "parameters", "vocabulary_tokens"});
}

TEST_F(Answers, EvalCountsEveryTokenWithANext) {
  const auto tokens = [&](const char* length) {
    return json({"eval", "--model", "good", "--data", STRATA_TEXT, "--sequence-length", length,
                 "--json"})
        .find("tokens")
        ->int64()
        .value();
  };
  const int64_t all = tokens("16");
  EXPECT_GT(all, 100);
  for (const char* length : {"17", "100", "2048"}) EXPECT_EQ(tokens(length), all) << length;
}

// 39 samples and some tokens behind them: counted as a sample, they would make the part two
// samples.
TEST_F(Answers, EvalOfAPartIsOfThePartThatTrainHeldOut) {
  std::string tokens;
  for (int i = 0; i < 39 * 32 + 10; ++i) tokens += {static_cast<char>(i * i % 61), '\0'};
  write_text(sandbox_ / "tokens.bin", tokens);
  Arguments arguments = train({"--data", "tokens.bin", "--eval-every", "1", "--json"});
  arguments[4] = "run";
  const config::Json trained = json(arguments);
  for (const Arguments& model : {Arguments{"--model", "run/model", "--sequence-length", "32"},
                                 Arguments{"--resume", "run"}}) {
    Arguments eval = {"eval", "--data", "tokens.bin", "--eval-fraction", "0.05", "--json"};
    eval.insert(eval.end(), model.begin(), model.end());
    const config::Json part = json(eval);
    EXPECT_EQ(part.find("tokens")->int64(), 32);
    EXPECT_EQ(part.find("loss")->number(), trained.find("held_out_loss")->number());
  }
}

TEST_F(Answers, AnEmptyPromptBeginsAText) {
  const std::string begun =
      run({"generate", "--model", "good", "--prompt", "", "--max-new-tokens", "4"});
  EXPECT_FALSE(begun.empty());
  std::filesystem::remove(sandbox_ / "good/tokenizer_config.json");
  std::filesystem::remove(sandbox_ / "good/special_tokens_map.json");
  Process refused({"generate", "--model", "good", "--prompt", ""}, {.directory = sandbox_.path()});
  EXPECT_EQ(refused.wait(), kUsage);
  EXPECT_NE(refused.err().find("no token for the start of a text"), std::string::npos)
      << refused.err();
}

TEST_F(Answers, InitWritesTheTypeOfTheRecipe) {
  const auto size = [&](const char* recipe) {
    run({"init", "--data", STRATA_TEXT, "--out", recipe, "--vocab-size", "300", "--hidden", "64",
         "--heads", "4", "--layers", "2", "--recipe", recipe});
    return std::filesystem::file_size(sandbox_ / (std::string(recipe) + "/model.safetensors"));
  };
  const auto whole = static_cast<double>(size("fp32"));
  EXPECT_NEAR(static_cast<double>(size("bf16")) / whole, 0.5, 0.1);
  EXPECT_NEAR(static_cast<double>(size("fp16")) / whole, 0.5, 0.1);
}

TEST_F(Answers, AnUnusedDriveIsTold) {
  Arguments arguments = train({"--offload", "none", "--nvme", "."});
  arguments[4] = "run";
  run(arguments);
  EXPECT_NE(err_.find("warning: --nvme has no effect: --offload none"), std::string::npos) << err_;
  EXPECT_EQ(err_.find("has no effect"), err_.rfind("has no effect")) << "told twice: " << err_;
}

TEST_F(Answers, PlanAndTrainReadOneFile) {
  write_text(sandbox_ / "run.toml", "model = \"good\"\ndata = \"" STRATA_TEXT
                                    "\"\nout = \"run\"\nsteps = 2\nsequence_length = 32\n"
                                    "seed = 3\nkeep_checkpoints = 1\nhost_memory = \"512MiB\"\n"
                                    "machine = \"" STRATA_MACHINE "\"\n");
  const config::Json plan = json({"plan", "--config", "run.toml", "--json"});
  EXPECT_EQ(plan.find("host")->find("bytes")->is_integer(), true);
  run({"train", "--config", "run.toml"});
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/checkpoints/step-000002"));
}

}  // namespace
}  // namespace strata::cli::test

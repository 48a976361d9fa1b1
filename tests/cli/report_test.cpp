// SPDX-License-Identifier: Apache-2.0
// The records of whole runs: the report agrees with the run's files, tracing changes no bit, the
// best checkpoint is kept, and patience ends a run.
#include <fmt/format.h>

#include <algorithm>

#include "engine/config/json.h"
#include "engine/train/best_checkpoint.h"
#include "tests/cli/metrics_records.h"
#include "tests/cli/program.h"
#include "tests/support/trace_check.h"

namespace strata::cli::test {
namespace {

using strata::test::check_trace;
using strata::test::TraceFacts;

class Records : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  std::string run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  }
  std::string train(const std::string& out, const Arguments& more) {
    Arguments all = {"train",     "--data",       STRATA_TEXT,         "--out", out,
                     "--machine", STRATA_MACHINE, "--sequence-length", "32"};
    const bool names_model = std::find(more.begin(), more.end(), "--model") != more.end();
    if (!names_model) all.insert(all.end(), {"--model", "model"});
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  // Options with which a run of the model "wide" spills its state.
  Arguments spilling(const Arguments& more) {
    make_model(sandbox_, "wide", {.layers = 4, .hidden = 96});
    Arguments all = {"--model", "wide", "--nvme", ".", "--offload", "nvme"};
    all.insert(all.end(), more.begin(), more.end());
    Arguments refused = {"train",   "--data",        STRATA_TEXT,    "--out",
                         "refused", "--machine",     STRATA_MACHINE, "--sequence-length",
                         "32",      "--host-memory", "1MiB"};
    refused.insert(refused.end(), all.begin(), all.end());
    Process process(refused, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 3) << process.out();
    all.insert(all.end(), {"--host-memory", std::to_string(least_mib(process.err())) + "MiB"});
    return all;
  }
  config::Json json(const std::string& name) {
    return config::Json::parse(read_text(sandbox_ / name), name);
  }
  bool has(const std::string& name) { return std::filesystem::exists(sandbox_ / name); }

  const Sandbox sandbox_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Records, AReportAgreesWithTheRunsFiles) {
  train("run", spilling({"--steps", "4", "--eval-every", "2", "--trace-steps", "1"}));
  EXPECT_SAYS(run({"report", "run"}), "run/report.html: 4 steps of run, done");
  const std::string html = read_text(sandbox_ / "run/report.html");
  config::Json last;
  for (const config::Json& record : metrics_of(sandbox_ / "run")) {
    if (record.find("eval_loss") == nullptr) last = record;
  }
  char loss[32];
  std::snprintf(loss, sizeof(loss), "<b>%.4f</b>", *last.find("loss")->number());
  EXPECT_SAYS(html, loss);
  EXPECT_SAYS(html, "<b>4 of 4</b><small>done</small>");
  EXPECT_SAYS(html, "Measured, step 2 of rank 0");
  EXPECT_SAYS(html, "Predicted by the simulator");
  EXPECT_SAYS(html, "Host memory: ");
  EXPECT_SAYS(html, "Drives: ");
  EXPECT_SAYS(html, "<td>a step writes to drives</td>");
  EXPECT_SAYS(html, "the most that the kernel counted");
  const config::Json plan = json("run/plan.json");
  EXPECT_EQ(plan.find("nvme_write_bytes")->int64(), last.find("nvme_write_bytes")->int64());
  EXPECT_EQ(*json("run/summary.json").find("last_step")->int64(), 4);
  const std::string elsewhere = run({"report", "run/", "--out", "it.html", "--json"});
  EXPECT_SAYS(elsewhere, R"("state": "done", "steps": 4)");
  EXPECT_EQ(read_text(sandbox_ / "it.html"), html);
}

TEST_F(Records, ARunThatWasKilledOrIsUnderWayHasAReport) {
  Process process({"train", "--model", "model", "--data", STRATA_TEXT, "--out", "a <b>&c",
                   "--machine", STRATA_MACHINE, "--sequence-length", "32", "--steps", "1000000"},
                  {.directory = sandbox_.path()});
  ASSERT_TRUE(process.prints("step 1/")) << process.err();
  EXPECT_SAYS(run({"report", "a <b>&c", "--out", "report.html"}), "under way, or killed");
  process.kill(SIGKILL);
  process.wait();
  run({"report", "a <b>&c", "--out", "report.html"});
  const std::string html = read_text(sandbox_ / "report.html");
  EXPECT_SAYS(html, "<h1>a &lt;b&gt;&amp;c</h1>");
  EXPECT_EQ(html.find("a <b>"), html.npos);
  EXPECT_SAYS(html, "of 1000000</b>");
}

TEST_F(Records, WhatIsNoRunHasNoReport) {
  Process missing({"report", "model"}, {.directory = sandbox_.path()});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_SAYS(missing.err(), "model: it has no run.json, so it is not a run");
  Process nowhere({"report", "nowhere"}, {.directory = sandbox_.path()});
  EXPECT_EQ(nowhere.wait(), 2);
  EXPECT_SAYS(nowhere.err(), "nowhere: there is no such directory (give the directory that");
  Process unnamed({"report"}, {.directory = sandbox_.path()});
  EXPECT_EQ(unnamed.wait(), 2);
  EXPECT_SAYS(unnamed.err(), "no run is named (strata report RUN)");
}

TEST_F(Records, AReportThatCannotBeWrittenIsAWrongOption) {
  EXPECT_SAYS(train("run", {"--steps", "1"}), "machine  small-2core of ");
  Process process({"report", "run", "--out", "nowhere/it.html"}, {.directory = sandbox_.path()});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_SAYS(process.err(), "report: nowhere: No such file or directory (give another --out)");
}

TEST_F(Records, AReportReplacesNothingButAReport) {
  EXPECT_SAYS(train("run", {"--steps", "1"}), "machine  small-2core of ");
  run({"report", "run", "--out", "it.html"});
  run({"report", "run", "--out", "it.html"});
  write_text(sandbox_ / "data.txt", "words");
  Process process({"report", "run", "--out", "data.txt"}, {.directory = sandbox_.path()});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_SAYS(process.err(), "report: data.txt: exists and is not a report (give another --out)");
  EXPECT_EQ(read_text(sandbox_ / "data.txt"), "words");
  const std::string pipe = sandbox_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Process device({"report", "run", "--out", "pipe"}, {.directory = sandbox_.path()});
  EXPECT_EQ(device.wait(), 2);
  EXPECT_SAYS(device.err(), "report: pipe: exists and is not a report (give another --out)");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << "a rename would replace it";
}

TEST_F(Records, ATraceLongerThanTheRunSaysSo) {
  Process process({"train", "--model", "model", "--data", STRATA_TEXT, "--out", "run", "--machine",
                   STRATA_MACHINE, "--sequence-length", "32", "--steps", "1", "--trace-steps", "9"},
                  {.directory = sandbox_.path()});
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_SAYS(process.err(), "--trace-steps 9: the run has only 1 step to trace");
}

TEST_F(Records, TracingChangesNoBitAndItsEventsAreThoseOfThePlan) {
  const Arguments spilled = spilling({"--steps", "6", "--accumulate", "2"});
  const std::string plain = train("plain", spilled);
  EXPECT_FALSE(has("plain/trace.json") || has("plain/lanes.json"));
  Arguments traced = spilled;
  traced.insert(traced.end(), {"--trace-steps", "2", "--trace-from", "3"});
  EXPECT_EQ(state_in(train("traced", traced)), state_in(plain));
  EXPECT_FALSE(has("traced/trace.json.tmp"));
  const std::string text = read_text(sandbox_ / "traced/trace.json");
  const TraceFacts facts = check_trace(config::Json::parse(text, "trace"));
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.steps, (std::set<int64_t>{3, 4}));
  const size_t begin = text.find("forward b0.attn mb1");
  EXPECT_NE(begin, text.npos);
  EXPECT_GT(facts.by_category.at("fetch"), 0u);
  EXPECT_GT(facts.by_category.at("spill"), 0u);
  EXPECT_EQ(facts.by_category.at("step"), 2u);
  // A resumed run traces when it is asked, and leaves the older trace alone otherwise.
  run({"train", "--out", "traced", "--resume", "--steps", "8"});
  EXPECT_EQ(read_text(sandbox_ / "traced/trace.json"), text);
}

TEST_F(Records, EveryRankIsAProcessOfTheTrace) {
  const Arguments ranks = {"--steps", "3", "--ranks", "2"};
  const std::string plain = train("plain", ranks);
  Arguments traced = ranks;
  traced.insert(traced.end(), {"--trace-steps", "3"});
  EXPECT_EQ(state_in(train("run", traced)), state_in(plain));
  const TraceFacts facts = check_trace(json("run/trace.json"));
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.processes, (std::set<int64_t>{0, 1}));
  EXPECT_EQ(facts.steps, (std::set<int64_t>{1, 2, 3}));
  EXPECT_GT(facts.by_category.at("reduce"), 0u);
  run({"report", "run"});
  EXPECT_SAYS(read_text(sandbox_ / "run/report.html"),
              "2 ranks: times and waits are those of rank 0");
}

// With such a rate the loss rises after a few steps, so that an early state is the best.
TEST_F(Records, TheBestCheckpointIsKeptAndUsable) {
  const Arguments often = {"--steps",     "8",   "--eval-every",       "1",
                           "--lr",        "0.5", "--keep-checkpoints", "1",
                           "--keep-best", "on"};
  const std::string out = train("run", often);
  const config::Json best = *json("run/summary.json").find("best");
  const int64_t step = best.find("step")->int64().value_or(0);
  double least = 1e9;
  int64_t least_step = 0;
  for (const config::Json& record : metrics_of(sandbox_ / "run")) {
    const config::Json* loss = record.find("eval_loss");
    if (loss == nullptr || loss->number().value_or(1e9) >= least) continue;
    least = *loss->number();
    least_step = *record.find("step")->int64();
  }
  EXPECT_EQ(step, least_step);
  ASSERT_LT(step, 8) << "the test wants a best that is not the last: " << out;
  EXPECT_SAYS(out, "\nbest     held out ");
  EXPECT_SAYS(out, "kept as run/best");
  std::vector<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "run/checkpoints")) {
    kept.push_back(entry.path().filename());
  }
  EXPECT_EQ(kept.size(), 2u) << "the newest and the best";
  run({"export", "--model", "model", "--resume", "run/best", "--out", "best-model"});
  run({"export", "--model", "model", "--resume", "run", "--out", "last-model"});
  EXPECT_EQ(read_text(sandbox_ / "last-model/model.safetensors"),
            read_text(sandbox_ / "run/model/model.safetensors"));
  EXPECT_NE(read_text(sandbox_ / "best-model/model.safetensors"),
            read_text(sandbox_ / "last-model/model.safetensors"));
  const auto loss_of = [&](const std::string& checkpoint) {
    const std::string answer = run({"eval", "--model", "model", "--resume", checkpoint, "--data",
                                    STRATA_TEXT, "--sequence-length", "32", "--json"});
    return *config::Json::parse(answer, "eval").find("loss")->number();
  };
  EXPECT_LT(loss_of("run/best"), loss_of("run"));
  EXPECT_SAYS(run({"generate", "--model", "model", "--resume", "run/best", "--prompt", "The",
                   "--max-new-tokens", "2", "--temperature", "0"}),
              "The");
}

TEST_F(Records, PatienceEndsARunAndAResumedRunKeepsTheCount) {
  const Arguments rising = {"--eval-every", "1", "--lr", "0.5", "--patience", "2"};
  Arguments long_run = rising;
  long_run.insert(long_run.end(), {"--steps", "1000"});
  const std::string out = train("run", long_run);
  EXPECT_SAYS(out, "\nearly    2 evaluations in a row did not lower the held-out loss below ");
  const config::Json summary = json("run/summary.json");
  EXPECT_EQ(summary.find("stopped_early")->boolean(), true);
  EXPECT_EQ(summary.find("stopped")->boolean(), false);
  const int64_t last = *summary.find("last_step")->int64();
  EXPECT_LT(last, 1000);
  EXPECT_TRUE(has("run/model/config.json")) << "its model is exported";
  run({"report", "run"});
  EXPECT_SAYS(read_text(sandbox_ / "run/report.html"), "<small>stopped early</small>");

  // The same run in two starts, of which the first ends one evaluation before.
  Arguments first = rising;
  first.insert(first.end(), {"--steps", "1000", "--checkpoint-every", std::to_string(last - 1)});
  const std::string whole = train("other", first);
  EXPECT_EQ(state_in(whole), state_in(out));
  run({"train", "--out", "other", "--resume",
       "other/checkpoints/step-" + std::string(6 - std::to_string(last - 1).size(), '0') +
           std::to_string(last - 1),
       "--force"});
  EXPECT_EQ(*json("other/summary.json").find("last_step")->int64(), last);
  const std::string again = run({"train", "--out", "other", "--resume"});
  EXPECT_SAYS(again, fmt::format("nothing to do: --patience 2 ended the run at step {}", last));
  EXPECT_EQ(state_in(again), state_in(out));
}

// The checkpoint of a step is written before its evaluation, so a stop may come between them.
TEST_F(Records, AnEvaluationThatAStopPreventedIsMadeUpFor) {
  const Arguments evaluating = {"--eval-every",       "2", "--steps",    "6",
                                "--checkpoint-every", "2", "--schedule", "constant"};
  const auto evaluations = [&](const std::string& name) {
    std::string losses;
    for (const auto& one : train::read_held_out_losses(sandbox_ / (name + "/metrics.jsonl"), 6)) {
      losses += fmt::format("{}: {}\n", one.step, one.loss);
    }
    return losses;
  };
  train("whole", evaluating);
  Arguments first = evaluating;
  first[3] = "4";
  train("cut", first);
  const std::string metrics = sandbox_ / "cut/metrics.jsonl";
  const std::string lines = read_text(metrics);
  const size_t last = lines.find("\n", lines.find("\"eval_loss\"")) + 1;
  const size_t lost = lines.find("\"eval_loss\"", last);
  ASSERT_NE(lost, std::string::npos) << lines;
  write_text(metrics, lines.substr(0, lines.rfind('\n', lost) + 1));
  run({"train", "--out", "cut", "--resume", "--steps", "6"});
  EXPECT_EQ(evaluations("cut"), evaluations("whole"));
}

}  // namespace
}  // namespace strata::cli::test

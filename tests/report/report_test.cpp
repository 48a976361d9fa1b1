// SPDX-License-Identifier: Apache-2.0
// A report says what the files of a run say, whatever of them there is.
#include "engine/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>

#include "engine/base/error.h"
#include "engine/plan/op_contract.h"
#include "engine/report/timeline.h"
#include "tests/support/temporary_directory.h"

namespace strata::report {
namespace {

constexpr const char* kRun = R"({"strata": "9.9", "options": {"model": "m", "data": "d.txt",
  "ranks": 2, "steps": 4, "lr": 0.5, "clip": 1.0}})";

// Two steps and an evaluation; stalls of 0.1 and 0.3 of 1 s and 3 s.
constexpr const char* kMetrics =
    R"({"step": 1, "loss": 7.25, "grad_norm": 2.5, "lr": 0.001, "tokens": 100, "step_s": 1.0, )"
    R"("stall_s": {"write": 0.1, "read_state": 0.0}, "nvme_read_bytes": 2000, )"
    R"("nvme_write_bytes": 4000000, "time": 1700000000})"
    "\n"
    R"({"step": 1, "eval_loss": 7.125, "time": 1700000000.5})"
    "\n"
    R"({"step": 2, "loss": 6.5, "grad_norm": 2.0, "lr": 0.002, "tokens": 100, "step_s": 3.0, )"
    R"("stall_s": {"write": 0.3, "read_state": 0.0}, "nvme_read_bytes": 2000, )"
    R"("nvme_write_bytes": 4000000, "time": 1700000003})"
    "\n";

constexpr const char* kPlan = R"({"predicted_step_s": 1.5, "predicted_tokens_per_s": 80.0,
  "bottleneck": "NVMe writes", "compute_stall_s": 0.25, "nvme_read_bytes": 2000,
  "nvme_write_bytes": 4000000, "busy_s": {"compute": 1.25, "write": 0.5},
  "host": {"bytes": 1048576, "budget_bytes": 2097152, "purposes": {"weights": 1048576}},
  "run": {"steps": 4, "nvme_write_bytes": 16000000.0},
  "drives": {"count": 1, "rated_write_bytes": 80000000.0, "is_assumed": true},
  "lanes": {"end_s": 1.5, "lanes": {"compute": [["forward", 0.0, 0.5], ["backward", 0.5, 1.25]],
                                    "write": [["spill", 0.75, 1.5]]}}})";

class Reports : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(path_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name) << text;
  }
  std::string html() { return report_html(read_run(path_)); }
  static size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  const test::TemporaryDirectory home_;
  const std::string path_ = home_ / "run";
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (part)

TEST_F(Reports, ShowSamplesFromTheFirstToTheLast) {
  write("run.json", kRun);
  EXPECT_EQ(html().find("Samples"), std::string::npos);
  std::string metrics = kMetrics;
  for (int step = 1; step <= 40; ++step) {
    metrics += R"({"step": )" + std::to_string(step) +
               R"(, "eval_loss": 7.0, "samples": [{"prompt": )" + R"("1 < 2", "text": " at )" +
               std::to_string(step) +
               R"(\n<&>"}, {"prompt": "B", "text": ""}]})"
               "\n";
  }
  write("metrics.jsonl",
        metrics + R"({"step": 40, "eval_loss": 7.0, "samples": [{"prompt": 3}, 4]})");
  const std::string text = html();
  EXPECT_EQ(count(text, "1 &lt; 2</p>"), 1u);
  EXPECT_SAYS(text, "<td>1</td><td> at 1\n&lt;&amp;&gt;</td>");
  EXPECT_SAYS(text, "<td>40</td><td> at 40\n");
  EXPECT_EQ(count(text, "<td> at "), 12u);
}

TEST_F(Reports, SayWhatTheFilesSay) {
  write("run.json", kRun);
  write("metrics.jsonl", kMetrics);
  write("plan.json", kPlan);
  const std::string text = html();
  EXPECT_SAYS(text, "<b>2 of 4</b>");
  EXPECT_SAYS(text, "<b>6.5000</b><small>7.2500 at first</small>");
  EXPECT_SAYS(text, "<b>7.1250</b><small>least 7.1250 at step 1</small>");
  EXPECT_SAYS(text, "<b>3 s</b><small>1.5 s predicted</small>") << "the upper median";
  EXPECT_SAYS(text, "<b>60</b><small>200 tokens learned</small>");
  EXPECT_SAYS(text, "<span>Compute waited</span><b>10%</b>");
  EXPECT_SAYS(text, "<b>8.00 MB</b><small>by steps</small>") << "of 2 ranks";
  EXPECT_SAYS(text, "Step 2 ended on 2023-11-14 22:13:23 UTC");
  EXPECT_SAYS(text, "2 ranks");
  EXPECT_SAYS(text, "<tr><td>a step takes</td><td>1.5 s</td><td>3 s</td><td>2.00</td></tr>");
  EXPECT_SAYS(text, "<tr><td>tokens a second</td><td>80</td><td>60</td><td>0.75</td></tr>");
  EXPECT_SAYS(text, "<tr><td>compute waits in a step</td><td>0.25 s</td><td>0.3 s</td>");
  EXPECT_SAYS(text, "<tr><td>a step reads from drives</td><td>1.95 KiB</td><td>1.95 KiB</td>");
  EXPECT_SAYS(text, "By the plan, a step is limited by NVMe writes.");
  EXPECT_SAYS(text, "<tr><td>written by steps so far</td><td>8.00 MB</td></tr>");
  EXPECT_SAYS(
      text, "<tr><td>written from the last start to the end, as planned</td><td>16.0 MB</td></tr>");
  EXPECT_SAYS(text, "<tr><td>share of it written so far</td><td>10%</td></tr>");
  EXPECT_SAYS(text, "The rating is assumed");
  EXPECT_SAYS(text, "Host memory: 1 MiB of 2 MiB");
  EXPECT_SAYS(text, "compute 90%");
  EXPECT_SAYS(text, "waits for writes to drives 10%");
  EXPECT_EQ(text.find("waits for state"), text.npos) << "it never did";
  EXPECT_SAYS(text, "<title>write: spill</title>");
  EXPECT_SAYS(text, "<tr><td>lr</td><td>0.5</td></tr>");
  EXPECT_EQ(text.find("<td>clip</td>"), text.npos) << "the default";
}

TEST_F(Reports, NeedNothingFromTheNetwork) {
  write("run.json", kRun);
  write("metrics.jsonl", kMetrics);
  write("plan.json", kPlan);
  const std::string text = html();
  for (const char* word : {"http:", "https:", "src=", "href=", "url(", "@import", "<script"}) {
    EXPECT_EQ(text.find(word), text.npos) << word;
  }
  EXPECT_EQ(count(text, "<svg"), count(text, "</svg>"));
  EXPECT_EQ(count(text, "<section>"), count(text, "</section>"));
}

TEST_F(Reports, TextOfARunCannotBecomePartOfThePage) {
  write("run.json",
        R"({"options": {"model": "<script>alert(1)</script>", "data": "a&b\"'", "steps": 1}})");
  write("metrics.jsonl", R"({"step": 1, "loss": 1.0, "stall_s": {"<img>": 0.5}, "step_s": 1.0})"
                         "\n");
  write("plan.json", R"({"bottleneck": "<b>x</b>", "host": {"bytes": 4096, "purposes":
    {"<i>": 4096}}, "lanes": {"end_s": 1, "lanes": {"<u>": [["<s>", 0.0, 1.0]]}}})");
  const std::string text = html();
  for (const char* part : {"<script", "<img", "<b>x", "<i>:", "<u>", "<s>"}) {
    EXPECT_EQ(text.find(part), text.npos) << part;
  }
  EXPECT_SAYS(text, "&lt;script&gt;alert(1)&lt;/script&gt;");
}

TEST_F(Reports, LossesThatAreNotFiniteAreGapsAndAreCounted) {
  write("run.json", kRun);
  write("metrics.jsonl",
        std::string(kMetrics) +
            R"({"step": 3, "loss": null, "grad_norm": null, "lr": 0.1, "tokens": 9, "step_s": 1, )"
            R"("stall_s": {}})"
            "\n" +
            R"({"step": 3, "eval_loss": null})" + "\n");
  const std::string text = html();
  EXPECT_SAYS(text, "The loss of 1 step is not finite.");
  EXPECT_SAYS(text, "<b>not finite</b><small>7.2500 at first</small>");
  EXPECT_SAYS(text, "<b>not finite</b><small>least 7.1250 at step 1</small>");
  EXPECT_FALSE(std::regex_search(text, std::regex("[\" >](nan|-nan|inf)[ <%\"]")));
}

TEST_F(Reports, StepsWithoutATargetAreNoLosses) {
  write("run.json", kRun);
  write("metrics.jsonl", std::string(kMetrics) +
                             R"({"step": 3, "loss": null, "skipped": "no target token", "lr": 0.1,)"
                             R"( "tokens": 0, "step_s": 0.0, "stall_s": {}})"
                             "\n");
  const std::string text = html();
  EXPECT_SAYS(text, "<b>3 of 4</b><small>1 without a target token</small>");
  EXPECT_SAYS(text, "<b>6.5000</b>");
  EXPECT_EQ(text.find("not finite"), text.npos);
}

TEST_F(Reports, WorkWithoutAPlanStepsOrEnd) {
  write("run.json", kRun);
  EXPECT_SAYS(html(), "No step yet");
  write("metrics.jsonl", "");
  EXPECT_SAYS(html(), "No step yet");
  write("metrics.jsonl", std::string(kMetrics) + R"({"step": 3, "lo)");
  const std::string text = html();
  EXPECT_SAYS(text, "<b>2 of 4</b>") << "a torn line is being written";
  EXPECT_SAYS(text, "There is no plan.json");
  EXPECT_SAYS(text, "<td>a step takes</td><td>-</td><td>3 s</td><td>-</td>");
}

TEST_F(Reports, ARunOfOneStepHasItsCharts) {
  write("run.json", kRun);
  write("metrics.jsonl", std::string(kMetrics).substr(0, std::string(kMetrics).find('\n') + 1));
  const std::string text = html();
  EXPECT_SAYS(text, "<circle") << "a line of one point is not seen";
  EXPECT_SAYS(text, "<b>1 of 4</b>");
}

TEST_F(Reports, SayWhatBecameOfTheRun) {
  write("run.json", kRun);
  EXPECT_EQ(state_of(read_run(path_)), "interrupted");
  write("run.lock", "");
  EXPECT_EQ(state_of(read_run(path_)), "under way, or killed");
  std::filesystem::remove(path_ + "/run.lock");
  for (const auto& [summary, state] :
       {std::pair(R"({"stopped": false})", "done"),
        std::pair(R"({"stopped": true})", "stopped on request"),
        std::pair(R"({"stopped": false, "stopped_early": true})", "stopped early")}) {
    write("summary.json", summary);
    EXPECT_EQ(state_of(read_run(path_)), state);
  }
}

TEST_F(Reports, MeasuredLanesAreDrawnBesideThePredictedOnes) {
  write("run.json", kRun);
  write("plan.json", kPlan);
  EXPECT_SAYS(html(), "--trace-steps");
  write("lanes.json", R"({"end_s": 3.0, "step": 2, "lanes": {"compute": [["loss", 0.0, 3.0]]}})");
  const std::string text = html();
  EXPECT_SAYS(text, "Measured, step 2 of rank 0");
  EXPECT_SAYS(text, "<title>compute: loss</title>");
  EXPECT_EQ(text.find("--trace-steps"), text.npos);
}

TEST_F(Reports, ColoursTellOpsOfAStepApart) {
  using enum plan::OpKind;
  for (int kind = 0; kind < plan::kOpKindCount; ++kind) {
    const auto op = static_cast<plan::OpKind>(kind);
    const bool is_small = op == kNormPartial || op == kDecide || op == kInput || op == kOutput;
    if (is_small || op == kSave || op == kEvaluate || op == kLogits) continue;
    const std::string name = plan::contract_of(op).name;
    const auto lanes =
        config::Json::parse(R"({"lanes": {"a": [[")" + name + R"(", 0.0, 1.0]]}})", "lanes");
    EXPECT_NE(timeline_legend({&lanes}).find(name), std::string::npos) << name;
  }
}

TEST_F(Reports, LinesThatAreNoRecordsAndPlacesThatAreNoRunsAreRefused) {
  EXPECT_THROW(read_run(path_), Error);
  write("run.json", kRun);
  write("metrics.jsonl", "nonsense\n" + std::string(kMetrics));
  try {
    read_run(path_);
    FAIL() << "a line that is no record";
  } catch (const Error& error) {
    EXPECT_SAYS(std::string(error.what()), "metrics.jsonl:1: the line is not the record");
  }
}

TEST_F(Reports, TenThousandStepsAreLessThanAMegabyte) {
  write("run.json", kRun);
  write("plan.json", kPlan);
  std::string lines;
  for (int step = 1; step <= 10'000; ++step) {
    const double wave = 0.5 + 0.5 * std::sin(step * 0.37);
    lines += R"({"step": )" + std::to_string(step) + R"(, "loss": )" +
             std::to_string(3 + 5 / std::sqrt(step) + 0.1 * wave) + R"(, "grad_norm": )" +
             std::to_string(wave) + R"(, "lr": 0.001, "tokens": 512, "step_s": 1.5, "stall_s": )" +
             R"({"write": )" + std::to_string(wave) + R"(, "optimizer": 0.1}, )" +
             R"("nvme_read_bytes": 1, "nvme_write_bytes": 1})" + "\n";
  }
  write("metrics.jsonl", lines);
  const std::string text = html();
  EXPECT_LT(text.size(), 200'000u);
  EXPECT_SAYS(text, "<b>10000 of 4</b>");
}

}  // namespace
}  // namespace strata::report

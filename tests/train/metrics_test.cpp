// SPDX-License-Identifier: Apache-2.0
// The metrics file survives a kill and reads as one run's after a resume; the progress line says
// what it should.
#include "engine/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/text/text_files.h"
#include "engine/train/metrics_progress.h"
#include "tests/support/log_capture.h"

namespace strata::train {
namespace {

std::string fresh_file(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(STRATA_BINARY_DIR) / "test-data";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / name);
  return (folder / name).string();
}

StepMetrics metrics_of(int64_t step) {
  return {.step = step,
          .loss = 3.5,
          .grad_norm = 0.25,
          .lr = 1e-3,
          .tokens = 700,
          .positions = 1000,
          .step_s = 0.5,
          .stall_s = {{"read", 0.125}, {"write", 0.0}},
          .nvme_read_bytes = 600000000,
          .nvme_write_bytes = 400000000};
}

void write_steps(const std::string& path, int64_t from, int64_t to) {
  MetricsWriter writer(path, from - 1);
  for (int64_t step = from; step <= to; ++step) writer.append(metrics_of(step));
}

std::string lines_of(int64_t from, int64_t to) {
  std::string text;
  for (int64_t step = from; step <= to; ++step) text += metrics_line(metrics_of(step)) + "\n";
  return text;
}

std::string text_in(const std::string& path) {
  return text::read_text_file(path, 1 << 20);
}

TEST(Metrics, OneObjectALineWithTheFixedNames) {
  StepMetrics metrics = metrics_of(7);
  metrics.loss = NAN;
  metrics.epoch = 1.5;
  metrics.mfu = 0.25;
  metrics.time_s = 1.7e9;
  const config::Json json = config::Json::parse(metrics_line(metrics), "line");
  EXPECT_EQ(json.find("step")->int64(), 7);
  EXPECT_TRUE(json.find("loss")->is_null());
  EXPECT_EQ(json.find("grad_norm")->number(), 0.25);
  EXPECT_EQ(json.find("lr")->number(), 1e-3);
  EXPECT_EQ(json.find("tokens")->int64(), 700);
  EXPECT_EQ(json.find("step_s")->number(), 0.5);
  EXPECT_EQ(json.find("tokens_per_s")->number(), 2 * static_cast<double>(metrics.positions));
  EXPECT_EQ(json.find("mfu")->number(), 0.25);
  EXPECT_EQ(json.find("stall_s")->find("read")->number(), 0.125);
  EXPECT_EQ(json.find("nvme_read_bytes")->int64(), 600000000);
  EXPECT_EQ(json.find("nvme_write_bytes")->int64(), 400000000);
  EXPECT_EQ(json.find("file_read_bytes")->int64(), 0);
  EXPECT_EQ(json.find("epoch")->number(), 1.5);
  EXPECT_EQ(json.find("time")->number(), 1.7e9);
}

TEST(Metrics, AnEvaluationHasALineOfItsOwnThatAResumedRunKeeps) {
  const std::string path = fresh_file("metrics-evaluation.jsonl");
  const EvaluationMetrics evaluation = {.step = 2, .loss = 1.25, .epoch = 0.5, .time_s = 1.7e9};
  {
    MetricsWriter writer(path, 0);
    for (int64_t step = 1; step <= 4; ++step) {
      writer.append(metrics_of(step));
      if (step % 2 == 0) {
        writer.append(
            EvaluationMetrics{step, evaluation.loss, evaluation.epoch, evaluation.time_s});
      }
    }
  }
  MetricsWriter(path, 3).append(metrics_of(4));
  EXPECT_EQ(text_in(path), lines_of(1, 2) + metrics_line(evaluation) + "\n" + lines_of(3, 4));
  const config::Json json = config::Json::parse(metrics_line(evaluation), "line");
  EXPECT_EQ(json.find("eval_loss")->number(), 1.25);
  EXPECT_EQ(json.find("eval_perplexity")->number(), std::exp(1.25));
  EXPECT_EQ(json.find("loss"), nullptr);
}

TEST(Metrics, ASkippedStepSaysWhy) {
  StepMetrics metrics = metrics_of(7);
  EXPECT_EQ(config::Json::parse(metrics_line(metrics), "line").find("skipped"), nullptr);
  metrics.skip = Skip::kNoTarget;
  const config::Json json = config::Json::parse(metrics_line(metrics), "line");
  EXPECT_EQ(json.find("skipped")->string(), "no target token");
  ProgressLine line({.steps = 9});
  EXPECT_EQ(line.step(metrics, 0.0), "step 7/9  skipped: no target token\n");
}

TEST(Metrics, LinesAreThereAsSoonAsTheyAreAppended) {
  const std::string path = fresh_file("metrics-append.jsonl");
  MetricsWriter writer(path, 0);
  writer.append(metrics_of(1));
  EXPECT_EQ(text_in(path), lines_of(1, 1));
  writer.append(metrics_of(2));
  EXPECT_EQ(text_in(path), lines_of(1, 2));
}

TEST(Metrics, AFileThatIsRemovedIsMadeAgain) {
  const test::LogCapture captured;
  const std::string path = fresh_file("metrics-removed.jsonl");
  MetricsWriter writer(path, 0);
  writer.append(metrics_of(1));
  std::filesystem::remove(path);
  for (const int64_t step : {2, 3}) writer.append(metrics_of(step));
  EXPECT_EQ(text_in(path), lines_of(2, 3));
  EXPECT_NE(captured.text().find(path + ": it was removed"), std::string::npos);
}

TEST(Metrics, ResumeDropsLaterRecords) {
  const std::string path = fresh_file("metrics-resume.jsonl");
  write_steps(path, 1, 9);
  write_steps(path, 6, 7);
  EXPECT_EQ(text_in(path), lines_of(1, 7));
}

TEST(Metrics, ResumeDropsATornLastLine) {
  const std::string path = fresh_file("metrics-torn.jsonl");
  const std::string whole = lines_of(1, 3);
  for (const size_t cut : {whole.size() - 1, whole.size() - 30}) {
    text::write_text_file(path, whole.substr(0, cut));
    write_steps(path, 3, 3);
    EXPECT_EQ(text_in(path), whole);
  }
}

TEST(Metrics, ForeignLinesInTheMiddleAreAnErrorAndStay) {
  const std::string path = fresh_file("metrics-foreign.jsonl");
  const std::string text = lines_of(1, 1) + "hello\n" + lines_of(2, 3);
  text::write_text_file(path, text);
  EXPECT_THROW(MetricsWriter(path, 3), Error);
  EXPECT_EQ(text_in(path), text);
}

TEST(Metrics, AStartAfreshEmptiesTheFile) {
  const std::string path = fresh_file("metrics-fresh.jsonl");
  write_steps(path, 1, 3);
  MetricsWriter writer(path, 0);
  EXPECT_EQ(text_in(path), "");
}

TEST(Metrics, AFileThatCannotBeOpenedIsAnError) {
  EXPECT_THROW(MetricsWriter("/proc/nonexistent/metrics.jsonl", 0), Error);
}

TEST(LossMean, WeighsBatchesByTheirTargets) {
  LossMean mean;
  EXPECT_TRUE(std::isnan(mean.mean()));
  mean.add(6.0, 3);
  mean.add(0.0, 0);
  mean.add(2.0, 1);
  EXPECT_DOUBLE_EQ(mean.mean(), 2.0);
  EXPECT_DOUBLE_EQ(mean.perplexity(), std::exp(2.0));
}

TEST(Progress, PlainLineHoldsTheNumbers) {
  ProgressLine line({.steps = 121});
  EXPECT_EQ(line.step(metrics_of(1), 100.0),
            "step 1/121  loss 3.5000  ETA 1 min  2000 tokens/s  stall 25%  NVMe 2.00 GB/s\n");
}

TEST(Progress, WhatMovesNothingIsNotThere) {
  StepMetrics metrics = metrics_of(1);
  metrics.nvme_read_bytes = metrics.nvme_write_bytes = 0;
  ProgressLine in_memory({.steps = 121});
  EXPECT_EQ(in_memory.step(metrics, 100.0).find("GB/s"), std::string::npos);
  metrics.file_read_bytes = 500000000;
  ProgressLine frozen({.steps = 121});
  const std::string text = frozen.step(metrics, 100.0);
  EXPECT_EQ(text.find("NVMe"), std::string::npos) << text;
  EXPECT_NE(text.find("files 1.00 GB/s"), std::string::npos) << text;
}

// With seven digits of steps and an hour left.
TEST(Progress, TheTimeLeftFitsATerminal) {
  for (const int columns : {60, 80, 100}) {
    StepMetrics metrics = metrics_of(1000000);
    metrics.loss = 12.3456;
    ProgressLine line({.steps = 1008000, .is_terminal = true, .columns = columns});
    const std::string text = line.step(metrics, 0.0);
    EXPECT_NE(text.find("  ETA 1 h 7 min"), std::string::npos) << text;
    EXPECT_EQ(text.find("stall 25%") != std::string::npos, columns > 60) << text;
    EXPECT_EQ(text.find("NVMe 2.00 GB/s") != std::string::npos, columns > 80) << text;
    EXPECT_LT(text.size(), static_cast<size_t>(columns) + 4) << "\\r and an escape of 3";
  }
}

TEST(Progress, PlainLinesAreRareButTheLastIsShown) {
  ProgressLine line({.steps = 4, .plain_every_s = 10});
  EXPECT_NE(line.step(metrics_of(1), 0.0), "");
  EXPECT_EQ(line.step(metrics_of(2), 5.0), "");
  EXPECT_NE(line.step(metrics_of(3), 10.0), "");
  EXPECT_NE(line.step(metrics_of(4), 11.0), "");
  EXPECT_EQ(line.finish(), "");
}

TEST(Progress, TerminalLineIsRedrawnWithinItsWidth) {
  ProgressLine line({.steps = 4, .is_terminal = true, .columns = 40});
  const std::string text = line.step(metrics_of(1), 0.0);
  EXPECT_EQ(text.substr(0, 9), "\rstep 1/4");
  EXPECT_EQ(text.substr(text.size() - 3), "\x1b[K");
  EXPECT_LE(text.size(), 1u + 39u + 3u);
  EXPECT_EQ(line.finish(), "\n");
  EXPECT_EQ(line.finish(), "");
}

TEST(Perplexity, IsShortHoweverLargeItIs) {
  EXPECT_EQ(perplexity_text(0, 3), "1.000");
  EXPECT_EQ(perplexity_text(6.25, 2), "518.01");
  EXPECT_EQ(perplexity_text(70, 3), "2.52e+30");
  EXPECT_EQ(perplexity_text(1e3, 3), "inf");
}

}  // namespace
}  // namespace strata::train

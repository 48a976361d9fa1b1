// SPDX-License-Identifier: Apache-2.0
#include "engine/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/base/error.h"
#include "engine/text/text_files.h"
#include "engine/train/metrics.h"
#include "engine/train/run_directory.h"

namespace strata::report {
namespace {

namespace fs = std::filesystem;
using config::Json;

Json read_if_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) ? Json::read_file(path) : Json();
}

double number_or_nan(const Json& record, const char* name) {
  return RunRecord::number(record, {name}).value_or(NAN);
}

// Steps that overflowed in fp16 are skipped too, but they took their time.
bool has_no_target(const Json& record) {
  const Json* why = record.find("skipped");
  return why != nullptr && why->is_string() &&
         why->string() == train::name_of(train::Skip::kNoTarget);
}

StepRecord step_of(const Json& record, std::vector<std::string>& causes) {
  StepRecord step = {.step = record.find("step")->int64().value_or(0),
                     .loss = number_or_nan(record, "loss"),
                     .grad_norm = number_or_nan(record, "grad_norm"),
                     .lr = number_or_nan(record, "lr"),
                     .tokens = number_or_nan(record, "tokens"),
                     .step_s = number_or_nan(record, "step_s"),
                     .stall_s = std::vector<double>(causes.size()),
                     .read_bytes = number_or_nan(record, "nvme_read_bytes"),
                     .write_bytes = number_or_nan(record, "nvme_write_bytes"),
                     .time_s = number_or_nan(record, "time"),
                     .skipped = has_no_target(record)};
  const Json* stalls = record.find("stall_s");
  if (stalls == nullptr || !stalls->is_object()) return step;
  for (const config::JsonMember& member : stalls->members()) {
    const auto at = std::find(causes.begin(), causes.end(), member.name);
    const auto index = static_cast<size_t>(at - causes.begin());
    if (at == causes.end()) {
      causes.push_back(member.name);
      step.stall_s.push_back(0);
    }
    step.stall_s[index] = member.value.number().value_or(0);
  }
  return step;
}

std::vector<SampleRecord> samples_of(const Json& record) {
  std::vector<SampleRecord> samples;
  const Json* all = record.find("samples");
  if (all == nullptr || !all->is_array()) return samples;
  for (const Json& one : all->items()) {
    const Json* prompt = one.find("prompt");
    const Json* text = one.find("text");
    if (prompt == nullptr || text == nullptr || !prompt->is_string() || !text->is_string())
      continue;
    samples.push_back({prompt->string(), text->string()});
  }
  return samples;
}

void read_metrics(const std::string& path, RunRecord& run) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  text::LineReader lines(path, [](int64_t, int64_t) {});
  while (lines.next()) {
    Json record;
    try {
      record = Json::parse(lines.text(), path);
    } catch (const Error&) {
      if (!lines.has_end()) break;  // it is being written
    }
    const Json* step = record.find("step");
    if (step == nullptr || !step->int64()) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("report: {}:{}: the line is not the record of a step (remove the "
                              "line)",
                              path, lines.number()));
    }
    if (record.find("eval_loss") == nullptr) {
      run.steps.push_back(step_of(record, run.causes));
    } else {
      run.evaluations.push_back({.step = *step->int64(),
                                 .loss = number_or_nan(record, "eval_loss"),
                                 .time_s = number_or_nan(record, "time"),
                                 .samples = samples_of(record)});
    }
  }
  for (StepRecord& step : run.steps) step.stall_s.resize(run.causes.size());
}

}  // namespace

double StepRecord::stall_total_s() const {
  return std::accumulate(stall_s.begin(), stall_s.end(), 0.0);
}

std::optional<double> RunRecord::number(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    at = at->find(name);
    if (at == nullptr) return std::nullopt;
  }
  return at->number();
}

std::string RunRecord::option(const char* name) const {
  const Json* options = run.find("options");
  const Json* value = options == nullptr ? nullptr : options->find(name);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->string() : value->dump();
}

double RunRecord::ranks() const {
  return number(run, {"options", "ranks"}).value_or(1);
}

std::optional<double> RunRecord::planned_steps() const {
  const auto planned = number(plan, {"run", "steps"});
  return planned ? planned : number(run, {"options", "steps"});
}

RunRecord read_run(const std::string& path) {
  RunRecord run;
  run.path = path;
  while (run.path.size() > 1 && run.path.back() == '/') run.path.pop_back();
  const std::string of = run.path + "/";
  std::error_code failure;  // such as a directory that may not be read
  if (!fs::exists(of + train::kRunFile, failure) && !failure) {
    const bool is_there = fs::exists(run.path, failure);
    throw Error(ErrorCode::kConfig, "report: " + run.path +
                                        (is_there ? ": it has no run.json, so it is not a run"
                                                  : ": there is no such directory") +
                                        " (give the directory that strata train --out named)");
  }
  run.run = Json::read_file(of + train::kRunFile);
  run.plan = read_if_there(of + train::kPlanFile);
  run.summary = read_if_there(of + train::kSummaryFile);
  run.lanes = read_if_there(of + train::kLanesFile);
  read_metrics(of + train::kMetricsFile, run);
  run.is_locked = fs::exists(of + train::kLockFile, failure);
  return run;
}

}  // namespace strata::report

// SPDX-License-Identifier: Apache-2.0
#include "engine/train/metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/model_files/file.h"
#include "engine/text/text_files.h"

namespace strata::train {
namespace {

using config::Json;

// The step of a line; nullopt when the line is not a record.
std::optional<int64_t> step_of(std::string_view line, const std::string& where) {
  try {
    const Json record = Json::parse(line, where);
    const Json* step = record.find("step");
    return step == nullptr ? std::nullopt : step->int64();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Bytes of the records up to `last_step`. The last line may be torn.
int64_t kept_bytes(const std::string& path, int64_t last_step) {
  text::LineReader lines(path, [](int64_t, int64_t) {});
  int64_t kept = 0;
  int64_t bad_line = 0;
  while (lines.next()) {
    if (bad_line > 0) {
      throw Error(
          ErrorCode::kCorrupt,
          fmt::format("continue metrics: {}:{}: the line is not the record of a step (remove "
                      "that line and those behind it, or move the file away: then "
                      "--patience counts anew, and best stays as it is)",
                      path, bad_line));
    }
    if (!lines.has_end()) return kept;
    const std::optional<int64_t> step = step_of(lines.text(), path);
    if (!step) {
      bad_line = lines.number();
      continue;
    }
    if (*step > last_step) return kept;
    kept = lines.end_bytes();
  }
  return kept;
}

}  // namespace

double StepMetrics::stall_total_s() const {
  double total = 0;
  for (const auto& [cause, seconds] : stall_s) total += seconds;
  return total;
}

double LossMean::perplexity() const {
  return std::exp(mean());
}

std::string perplexity_text(double loss, int decimals) {
  constexpr double kLong = 1e6;
  const double perplexity = std::exp(loss);
  return perplexity < kLong ? fmt::format("{:.{}f}", perplexity, decimals)
                            : fmt::format("{:.3g}", perplexity);
}

std::string metrics_line(const StepMetrics& metrics) {
  Json stalls = Json::object();
  for (const auto& [cause, seconds] : metrics.stall_s) stalls.set(cause, seconds);
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("loss", metrics.loss);
  if (metrics.skip != Skip::kNo) record.set("skipped", name_of(metrics.skip));
  record.set("grad_norm", metrics.grad_norm);
  if (metrics.loss_scale) record.set("loss_scale", *metrics.loss_scale);
  record.set("lr", metrics.lr);
  record.set("tokens", metrics.tokens);
  record.set("step_s", metrics.step_s);
  record.set("tokens_per_s", metrics.tokens_per_s());
  record.set("mfu", metrics.mfu > 0 ? Json(metrics.mfu) : Json());
  record.set("stall_s", std::move(stalls));
  record.set("nvme_read_bytes", metrics.nvme_read_bytes);
  record.set("nvme_write_bytes", metrics.nvme_write_bytes);
  record.set("file_read_bytes", metrics.file_read_bytes);
  record.set("sent_bytes", metrics.sent.all());
  record.set("sent_between_machines_bytes", metrics.sent.between);
  record.set("epoch", metrics.epoch);
  record.set("time", metrics.time_s);
  return record.dump();
}

std::string metrics_line(const EvaluationMetrics& metrics) {
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("eval_loss", metrics.loss);
  record.set("eval_perplexity", metrics.perplexity());
  record.set("epoch", metrics.epoch);
  record.set("time", metrics.time_s);
  if (metrics.samples.empty()) return record.dump();
  Json samples = Json::array();
  for (const SampledText& one : metrics.samples) {
    Json sample = Json::object();
    sample.set("prompt", one.prompt);
    sample.set("text", one.text);
    samples.push_back(std::move(sample));
  }
  record.set("samples", std::move(samples));
  return record.dump();
}

double EvaluationMetrics::perplexity() const {
  return std::exp(loss);
}

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t last_step)
    : file_("metrics", path,
            last_step > 0 && model::is_there(path) ? kept_bytes(path, last_step) : 0) {}

}  // namespace strata::train

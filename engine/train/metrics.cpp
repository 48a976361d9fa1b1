// SPDX-License-Identifier: Apache-2.0
#include "engine/train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <optional>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/config/json.h"
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
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("continue metrics: {}:{}: the line is not the record of a step (move "
                              "the file away; the run does not need it)",
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

void set_all(Json& object, const std::vector<std::pair<std::string, double>>& members) {
  for (const auto& [name, value] : members) object.set(name, value);
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

std::string metrics_line(const StepMetrics& metrics) {
  Json stalls = Json::object();
  set_all(stalls, metrics.stall_s);
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("loss", metrics.loss);
  if (metrics.skipped) record.set("skipped", "no target token");
  record.set("grad_norm", metrics.grad_norm);
  record.set("lr", metrics.lr);
  record.set("tokens", metrics.tokens);
  record.set("step_s", metrics.step_s);
  record.set("stall_s", std::move(stalls));
  record.set("nvme_read_bytes", metrics.nvme_read_bytes);
  record.set("nvme_write_bytes", metrics.nvme_write_bytes);
  record.set("file_read_bytes", metrics.file_read_bytes);
  set_all(record, metrics.extra);
  return record.dump();
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t last_step) : path_(path) {
  int64_t kept = 0;
  if (last_step > 0 && access(path.c_str(), F_OK) == 0) {
    kept = kept_bytes(path, last_step);
  }
  const BlockingCall call("open", path_);
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) throw system_error(ErrorCode::kIo, fmt::format("open metrics: {}", path), errno);
  if (ftruncate(file_, kept) != 0) {
    const int cause = errno;
    close(file_);
    throw system_error(ErrorCode::kIo, fmt::format("open metrics: {}", path), cause);
  }
}

MetricsWriter::~MetricsWriter() {
  close(file_);
}

void MetricsWriter::append(const StepMetrics& metrics) {
  const std::string line = metrics_line(metrics) + "\n";
  const BlockingCall call("write", path_);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = write(file_, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      throw system_error(ErrorCode::kIo, fmt::format("write metrics: {}", path_), errno,
                         "free some space and resume from the last checkpoint");
    }
    done += static_cast<size_t>(put);
  }
}

}  // namespace strata::train

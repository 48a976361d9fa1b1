// SPDX-License-Identifier: Apache-2.0
#include "engine/train/metrics_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"

namespace strata::train {
namespace {

constexpr double kDecay = 0.8705505632961241;  // 0.5 ^ (1/5)

}  // namespace

// The most important numbers come first; those that do not fit the width are left out.
std::string ProgressLine::text_of(const StepMetrics& metrics, size_t columns) const {
  const std::string step = fmt::format("step {}/{}", metrics.step, options_.steps);
  if (metrics.skip != Skip::kNo) return step + "  skipped: " + name_of(metrics.skip);
  const double seconds = std::max(step_s_ / weight_, 1e-9);
  const auto left = static_cast<double>(std::max<int64_t>(0, options_.steps - metrics.step));
  const auto gb_per_s = [&](double bytes) { return bytes / weight_ / seconds / 1e9; };
  std::string text = step;
  bool fits = true;
  const auto add = [&](const std::string& part) {
    fits = fits && text.size() + 2 + part.size() <= columns;
    if (fits) text += "  " + part;
  };
  add(fmt::format("loss {:.4f}", metrics.loss));
  add("ETA " + format_duration(std::round(left * seconds)));
  add(format_count(tokens_ / weight_ / seconds) + " tokens/s");
  add(fmt::format("stall {:.0f}%", 100.0 * std::min(1.0, stall_s_ / weight_ / seconds)));
  if (nvme_bytes_ > 0) add(fmt::format("NVMe {:.2f} GB/s", gb_per_s(nvme_bytes_)));
  if (file_bytes_ > 0) add(fmt::format("files {:.2f} GB/s", gb_per_s(file_bytes_)));
  add(fmt::format("grad norm {:.3f}", metrics.grad_norm));
  add(fmt::format("lr {:.2e}", metrics.lr));
  return text;
}

std::string ProgressLine::step(const StepMetrics& metrics, double now_s) {
  const auto smooth = [&](double& sum, double value) {
    if (metrics.skip == Skip::kNo) sum = sum * kDecay + value;
  };
  smooth(weight_, 1);
  smooth(step_s_, metrics.step_s);
  smooth(tokens_, static_cast<double>(metrics.positions));
  smooth(stall_s_, metrics.stall_total_s());
  smooth(nvme_bytes_, static_cast<double>(metrics.nvme_read_bytes + metrics.nvme_write_bytes));
  smooth(file_bytes_, static_cast<double>(metrics.file_read_bytes));
  const auto columns = static_cast<size_t>(std::max(20, options_.columns - 1));
  if (options_.is_terminal) {
    std::string text = text_of(metrics, columns);
    text.resize(std::min(text.size(), columns));
    is_open_ = true;
    return "\r" + text + "\x1b[K";
  }
  const bool is_due = !has_printed_ || now_s - printed_s_ >= options_.plain_every_s;
  if (!is_due && metrics.step != options_.first_step && metrics.step != options_.steps) return "";
  has_printed_ = true;
  printed_s_ = now_s;
  return text_of(metrics, columns) + "\n";
}

std::string ProgressLine::finish() {
  const bool was_open = is_open_;
  is_open_ = false;
  return was_open ? "\n" : "";
}

}  // namespace strata::train

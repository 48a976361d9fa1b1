// SPDX-License-Identifier: Apache-2.0
#include "io/speed_watch.h"

#include <algorithm>

namespace strata::io {
namespace {

constexpr double kWindowS = 2;
constexpr double kSlowShare =
    0.25;  // of the best window; reads beside writes alone may halve a rate
constexpr uint32_t kSlowWindows = 2;

}  // namespace

std::optional<SlowReport> SpeedWatch::add(uint32_t file, uint64_t bytes, double latency_s,
                                          double now_s, bool full) {
  if (was_full_ && full) {
    window_s_ += now_s - last_s_;
    window_bytes_ += bytes;
    latency_s_[file] += latency_s;
    ++requests_[file];
  }
  was_full_ = full;
  last_s_ = now_s;
  return window_s_ >= kWindowS ? close_window() : std::nullopt;
}

std::optional<SlowReport> SpeedWatch::close_window() {
  const double rate = static_cast<double>(window_bytes_) / window_s_;
  best_ = std::max(best_, rate);
  slow_windows_ = rate < kSlowShare * best_ ? slow_windows_ + 1 : 0;
  std::optional<SlowReport> report;
  if (slow_windows_ >= kSlowWindows && rate < reported_ / 2) {
    reported_ = rate;
    const auto mean = [this](size_t i) {
      return requests_[i] == 0 ? 0 : latency_s_[i] / static_cast<double>(requests_[i]);
    };
    uint32_t slowest = 0;
    for (uint32_t i = 1; i < latency_s_.size(); ++i)
      slowest = mean(i) > mean(slowest) ? i : slowest;
    report = SlowReport{slowest, rate, best_};
  }
  window_s_ = 0;
  window_bytes_ = 0;
  std::fill(latency_s_.begin(), latency_s_.end(), 0);
  std::fill(requests_.begin(), requests_.end(), 0);
  return report;
}

}  // namespace strata::io

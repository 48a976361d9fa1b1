// SPDX-License-Identifier: Apache-2.0
#include "io/speed_watch.h"

#include <algorithm>

namespace strata::io {
namespace {

constexpr double kWindowS = 2;
constexpr double kSlowShare =
    0.25;  // of the best window; writes at the same time may already halve a rate
constexpr uint32_t kSlowWindows = 2;

}  // namespace

std::optional<SlowReport> SpeedWatch::add(uint64_t bytes, double now_s, bool full) {
  if (was_full_ && full) {
    window_s_ += now_s - last_s_;
    window_bytes_ += bytes;
  }
  was_full_ = full;
  last_s_ = now_s;
  return window_s_ >= kWindowS ? close_window() : std::nullopt;
}

std::optional<SlowReport> SpeedWatch::close_window() {
  const double rate = static_cast<double>(window_bytes_) / window_s_;
  best_ = std::max(best_, rate);
  slow_windows_ = rate < kSlowShare * best_ ? slow_windows_ + 1 : 0;
  window_s_ = 0;
  window_bytes_ = 0;
  if (slow_windows_ < kSlowWindows || rate >= reported_ / 2) return std::nullopt;
  reported_ = rate;
  return SlowReport{rate, best_};
}

}  // namespace strata::io

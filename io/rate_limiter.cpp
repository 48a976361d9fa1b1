// SPDX-License-Identifier: Apache-2.0
#include "io/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/error.h"

namespace strata::io {

RateLimiter::RateLimiter(const RateLimits& limits) : limits_(limits) {
  const auto usable = [](double rate) { return std::isfinite(rate) && rate >= 0; };
  if (!usable(limits.read_bytes_per_s) || !usable(limits.write_bytes_per_s)) {
    throw Error(ErrorCode::kConfig,
                "rate limit: must be a number of bytes per second, or 0 for none");
  }
}

bool RateLimiter::limits(Direction direction) const {
  return (direction == Direction::kRead ? limits_.read_bytes_per_s : limits_.write_bytes_per_s) > 0;
}

double RateLimiter::book(Direction direction, uint64_t bytes, double now_s) {
  const double rate =
      direction == Direction::kRead ? limits_.read_bytes_per_s : limits_.write_bytes_per_s;
  if (rate <= 0) return now_s;
  const std::lock_guard lock(mu_);
  double& free_at_s = free_at_s_[limits_.half_duplex ? 0 : static_cast<int>(direction)];
  const double start_s = std::max(free_at_s, now_s - limits_.burst_s);
  free_at_s = start_s + static_cast<double>(bytes) / rate;
  return start_s;
}

std::string RateLimiter::describe() const {
  std::string text;
  const auto append = [&text](const char* name, double rate) {
    if (rate <= 0) return;
    char part[64];
    std::snprintf(part, sizeof part, "%s%s %.3g GB/s", text.empty() ? "" : ", ", name, rate / 1e9);
    text += part;
  };
  append("read", limits_.read_bytes_per_s);
  append("write", limits_.write_bytes_per_s);
  if (!text.empty() && limits_.half_duplex) text += ", half duplex";
  return text;
}

}  // namespace strata::io

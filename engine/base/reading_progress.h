// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/units.h"

namespace strata {

// Logs how much of `what`, such as "data: FILE", is read and how long the rest will take, every ten
// seconds from the first ten on. Threads: one.
class ReadingProgress {
 public:
  ReadingProgress(std::string what, int64_t all_bytes, double every_s = 10)
      : what_(std::move(what)), all_bytes_(all_bytes), every_s_(every_s) {}

  void add(int64_t bytes) {
    read_bytes_ += bytes;
    const double now = now_s();
    if (now < next_s_ || read_bytes_ >= all_bytes_) return;
    next_s_ = now + every_s_;
    const double left_s = (now - begin_s_) * static_cast<double>(all_bytes_ - read_bytes_) /
                          static_cast<double>(read_bytes_);
    log(LogLevel::kInfo,
        fmt::format("{}: {} of {} read, about {} to go", what_, format_bytes(read_bytes_),
                    format_bytes(all_bytes_), format_duration(std::ceil(left_s))));
  }

 private:
  const std::string what_;
  const int64_t all_bytes_;
  const double every_s_;
  const double begin_s_ = now_s();
  double next_s_ = begin_s_ + every_s_;
  int64_t read_bytes_ = 0;
};

}  // namespace strata

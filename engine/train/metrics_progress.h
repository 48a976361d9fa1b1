// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/train/metrics.h"

namespace strata::train {

struct ProgressOptions {
  int64_t steps = 0;       // of the whole run
  int64_t first_step = 1;  // of this process: a resumed run starts later
  bool is_terminal = false;
  int columns = 80;  // of the terminal
  double plain_every_s =
      10;  // at most one plain line in that time; the first and the last step always
};

// The progress line: one that is redrawn on a terminal, plain lines elsewhere.
//
// Rates are smoothed over the last steps (a half-life of five), the loss is that of the step. Pure
// apart from its own averages: it is given the time and returns text, and never prints. Threads:
// one.
class ProgressLine {
 public:
  explicit ProgressLine(const ProgressOptions& options) : options_(options) {}

  // What to print for this step, at that time on a steady clock: empty, or text that ends in a line
  // end or starts with a carriage return.
  std::string step(const StepMetrics& metrics, double now_s);
  // Ends the redrawn line, so that other output starts on its own.
  std::string finish();

 private:
  std::string text_of(const StepMetrics& metrics, size_t columns) const;

  ProgressOptions options_;
  double step_s_ = 0;  // smoothed, like the rest
  double tokens_ = 0;
  double stall_s_ = 0;
  double nvme_bytes_ = 0;
  double file_bytes_ = 0;
  double weight_ = 0;
  double printed_s_ = 0;
  bool has_printed_ = false;
  bool is_open_ = false;  // a redrawn line stands without its end
};

// "1:02:03", "4:05" or "12 s".
std::string format_duration(double seconds);

}  // namespace strata::train

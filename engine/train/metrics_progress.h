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
  int columns = 80;           // of a line, on a terminal or elsewhere
  double plain_every_s = 10;  // least time between plain lines, except at the first and last step
};

// The progress display: one line that is redrawn on a terminal, plain lines elsewhere.
//
// Rates are smoothed over the last steps (half-life: five steps); the loss is that of the step. It
// never prints or reads the clock: it gets the time and returns text. Threads: one.
class ProgressLine {
 public:
  explicit ProgressLine(const ProgressOptions& options) : options_(options) {}

  // Returns the text to print for this step: empty, or text that ends with a line end or starts
  // with a carriage return. `now_s` is on a steady clock.
  std::string step(const StepMetrics& metrics, double now_s);
  // Ends the redrawn line, so that other output starts on a new line.
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
  bool is_open_ = false;  // a redrawn line has no line end yet
};

}  // namespace strata::train

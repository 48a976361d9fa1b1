// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/process_sinks.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace strata::cli {
namespace {

std::atomic<HangReport> hang_report{nullptr};
std::atomic<bool> closes_now{false};

// Prints a line whole, even when several threads print.
void print_line(LogLevel level, std::string_view message) {
  std::string line = level == LogLevel::kWarning ? "warning: " : "";
  line += printable(message);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

[[noreturn]] void end_process(const Error& error) {
  int code = error.exit_code();
  if (const HangReport report = hang_report.exchange(nullptr)) {
    code = report(code);
    std::fflush(stdout);
  }
  const std::string line = "error: " + printable(error.what()) + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  _exit(code);
}

}  // namespace

Sinks process_sinks(double hang_after_s) {
  return {.log = print_line,
          .hang = end_process,
          .hang_after_s = hang_after_s,
          .close_now = &closes_now};
}

void set_hang_report(HangReport report) {
  hang_report = report;
}

void close_now() {
  closes_now = true;
}

}  // namespace strata::cli

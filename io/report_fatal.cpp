// SPDX-License-Identifier: Apache-2.0
#include "io/report_fatal.h"

#include <atomic>

namespace strata::io {
namespace {

std::atomic<FatalReport> fatal_report{nullptr};
std::atomic<bool> is_closing_now{false};

}  // namespace

void set_fatal_report(FatalReport report) {
  fatal_report = report;
}

int report_fatal(int code) {
  const FatalReport report = fatal_report.exchange(nullptr);
  return report == nullptr ? code : report(code);
}

void close_now() {
  is_closing_now = true;
}

bool closes_now() {
  return is_closing_now;
}

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata {

// Prints the condition and its place, then aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace strata

// Stops the program at a bug of ours, in every build. The condition must have no side effects. What
// files, users or the system can cause is an Error instead.
#define STRATA_CHECK(condition)                 \
  (__builtin_expect(!!(condition), 1) ? void(0) \
                                      : ::strata::check_failed(#condition, __FILE__, __LINE__))

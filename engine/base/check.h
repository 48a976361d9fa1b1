// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata {

// Prints where and why, then aborts. Never returns.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace strata

// A bug of ours stops the program, in every build. Never put a call that must run inside it, and
// never use it for what the world can cause: that is an Error.
#define STRATA_CHECK(condition)                 \
  (__builtin_expect(!!(condition), 1) ? void(0) \
                                      : ::strata::check_failed(#condition, __FILE__, __LINE__))

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "engine/base/error.h"

namespace strata::data {

// The disk of kept tokens has no room for them.
class DiskFull : public Error {
 public:
  using Error::Error;
  explicit DiskFull(const Error& error) : Error(error) {}
};

// Throws the error of a system call that failed while tokens were written: DiskFull where it says
// that the disk or this user's share of it is full, and else of that code.
[[noreturn]] inline void throw_not_written(const std::string& path, int errno_value,
                                           ErrorCode otherwise = ErrorCode::kIo) {
  if (errno_value != ENOSPC && errno_value != EDQUOT) {
    throw system_error(otherwise, fmt::format("write tokens: {}", path), errno_value);
  }
  throw DiskFull(system_error(ErrorCode::kDoesNotFit, fmt::format("write tokens: {}", path),
                              errno_value,
                              "free some space, or give another disk by --data-cache DIR"));
}

}  // namespace strata::data

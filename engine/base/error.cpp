// SPDX-License-Identifier: Apache-2.0
#include "engine/base/error.h"

#include <cerrno>
#include <cstring>

#include "engine/base/advice.h"

namespace strata {

int Error::exit_code() const {
  switch (code_) {
    case ErrorCode::kUsage:
    case ErrorCode::kConfig:
      return 2;
    case ErrorCode::kDoesNotFit:
      return 3;
    default:
      return 4;
  }
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown failure";
  }
}

Error system_error(ErrorCode code, const std::string& what, int errno_value,
                   const std::string& advice) {
  // Advice about an object does not help where the process has no more files.
  const bool is_usual = advice.empty() || lacks_descriptors(errno_value);
  const std::string way_out = is_usual ? usual_advice(errno_value) : advice;
  std::string text = what + ": " + std::strerror(errno_value);
  if (!way_out.empty()) text += " (" + way_out + ")";
  return Error(code, text);
}

}  // namespace strata

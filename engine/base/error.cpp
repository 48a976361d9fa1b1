// SPDX-License-Identifier: Apache-2.0
#include "engine/base/error.h"

#include <cstring>

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

Error system_error(ErrorCode code, const std::string& what, int errno_value,
                   const std::string& advice) {
  std::string text = what + ": " + std::strerror(errno_value);
  if (!advice.empty()) text += " (" + advice + ")";
  return Error(code, text);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "engine/base/error.h"

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

Error system_error(ErrorCode code, const std::string& what, int errno_value,
                   const std::string& advice) {
  const std::string way_out = advice.empty() ? usual_advice(errno_value) : advice;
  std::string text = what + ": " + std::strerror(errno_value);
  if (!way_out.empty()) text += " (" + way_out + ")";
  return Error(code, text);
}

}  // namespace strata

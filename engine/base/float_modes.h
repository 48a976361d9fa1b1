// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>

namespace strata {

// Rounding to nearest, and denormal numbers as they are, for a scope of the calling thread. A
// program that uses the library may have set other modes, which its threads pass on to those that
// they start.
class DefaultFloatModes {
 public:
  DefaultFloatModes() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatModes() { std::fesetenv(&before_); }
  DefaultFloatModes(const DefaultFloatModes&) = delete;
  DefaultFloatModes& operator=(const DefaultFloatModes&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace strata

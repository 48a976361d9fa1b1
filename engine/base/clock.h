// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace strata {

// Seconds on the steady clock; the zero is arbitrary. Wall-clock jumps have no effect.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace strata

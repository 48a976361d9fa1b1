// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace strata {

// The result of a system call, which is made again as long as signals interrupt it. Calls of file
// systems in programs are interrupted also where the handler asks for a restart.
template <class Call>
int uninterrupted(const Call& call) {
  int result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace strata

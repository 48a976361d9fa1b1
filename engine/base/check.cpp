// SPDX-License-Identifier: Apache-2.0
#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "strata: internal error: %s is false at %s:%d (please report this)\n",
               condition, file, line);
  std::abort();
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/cache_directory.h"

#include <cstdlib>

namespace strata::cli {

std::string cache_directory() {
  std::string path;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    path = std::string(cache) + "/strata";
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    path = std::string(home) + "/.cache/strata";
  }
  return path;
}

}  // namespace strata::cli

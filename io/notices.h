// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "engine/base/log.h"

namespace strata::io {

// Logs each text once, so that channels of a volume do not repeat each other's notices. Threads:
// any.
class Notices {
 public:
  void once(LogLevel level, const std::string& text) {
    const std::lock_guard lock(mu_);
    if (said_.insert(text).second) log(level, text);
  }

 private:
  std::mutex mu_;
  std::set<std::string> said_;  // Guarded by mu_
};

}  // namespace strata::io

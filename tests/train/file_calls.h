// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

namespace strata::test {

// Stands before this program's calls of pread(), pwrite() and fsync() while it lives, one at a
// time. `before` gets the name of the call; the call fails with the errno that it returns, or is
// made where that is 0. Threads: `before` runs on those that call.
class FileCalls {
 public:
  explicit FileCalls(std::function<int(std::string_view)> before);
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;
};

}  // namespace strata::test

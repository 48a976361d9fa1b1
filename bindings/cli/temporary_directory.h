// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata::cli {

// $TMPDIR, or /tmp without it.
std::string temporary_base();

// A directory in temporary_base() that no other user may enter. It is removed with the object.
// Failure: the constructor throws Error (kConfig).
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& purpose);  // part of its name
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace strata::cli

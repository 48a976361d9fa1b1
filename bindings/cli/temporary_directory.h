// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata::cli {

// A directory below $TMPDIR (/tmp) that no other user may enter. It is removed with the object.
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

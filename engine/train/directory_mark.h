// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata::train {

// A small file by which ranks find out whether they see the same directory. Rank 0 writes it into
// `path`, or into the nearest directory above it that exists; the destructor removes it. Failure:
// Error when it cannot be written.
class DirectoryMark {
 public:
  explicit DirectoryMark(const std::string& path);
  ~DirectoryMark();
  DirectoryMark(const DirectoryMark&) = delete;
  DirectoryMark& operator=(const DirectoryMark&) = delete;

  const std::string& text() const { return text_; }  // for the other ranks

 private:
  std::string file_;
  std::string text_;
};

// Looks for the mark from this rank's `path`, for at most `deadline_s`: file systems of a network
// show what is new after a while. Returns why it is not seen; empty when it is.
std::string why_unseen(const std::string& mark, const std::string& path, double deadline_s);

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata {

// The failures of several pieces of work that need nothing of each other, told together: who has
// mistaken two things learns of both at once.
//
// Threads: one. Failure: errors that are no Error pass through.
class Failures {
 public:
  // Does the work; whether it was done.
  template <typename Work>
  bool collect(const Work& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      errors_.push_back(error);
      return false;
    }
  }

  // Throws what failed: one Error as it is; several under one headline, "WHAT: 2 problems", with
  // the code of what is to be mended first, the usage.
  void throw_if_any(const std::string& what) const;

 private:
  std::vector<Error> errors_;
};

}  // namespace strata

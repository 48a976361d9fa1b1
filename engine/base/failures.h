// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata {

// Collects the failures of several independent pieces of work, so that all mistakes are reported at
// once, not only the first.
//
// Threads: one. Failure: exceptions other than Error pass through.
class Failures {
 public:
  // Does the work. Returns false when it failed.
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

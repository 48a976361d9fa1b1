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

  // Throws when something failed: a single Error as it is, several under one headline, "WHAT: 2
  // problems". Their code is the one with the lowest exit code, since wrong usage must be corrected
  // first.
  void throw_if_any(const std::string& what) const;

 private:
  std::vector<Error> errors_;
};

}  // namespace strata

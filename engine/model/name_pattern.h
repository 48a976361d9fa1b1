// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "engine/model/spec.h"

namespace strata::model {

// A regular expression (PCRE2) that chooses parameters: --freeze, and `match` of a group.
//
// Threads: one at a time. Failure: Error (kConfig) that begins with `option` and the pattern, from
// the constructor when the pattern is not a regular expression, and from matches() when it
// backtracks too long.
class NamePattern {
 public:
  NamePattern(std::string option, std::string pattern);
  ~NamePattern();
  NamePattern(const NamePattern&) = delete;
  NamePattern& operator=(const NamePattern&) = delete;

  // Whether the pattern matches the whole name of the parameter, or of the stored tensor that the
  // parameter is a part of.
  bool matches(const Parameter& parameter) const;

  // Throws Error (kConfig) with the message 'OPTION: "PATTERN": CAUSE'.
  [[noreturn]] void refuse(const std::string& cause) const;

 private:
  struct Compiled;

  bool matches(const std::string& name) const;

  const std::string option_;
  const std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace strata::model

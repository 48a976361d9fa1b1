// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"

namespace strata::config {

// A value of a DeepSpeed file that has no members, with its path: "zero_optimization.stage".
struct Leaf {
  std::string key;
  const Json* value;
};

// All of them, in the order of the file. They refer to `root`.
std::vector<Leaf> leaves_of(const Json& root);

// A value as an option reads it: 5e8 is whole. Of an array, its items.
std::string text_of(const Json& value);
std::vector<std::string> texts_of(const Json& value);

// Names and truth values are read in any case.
std::string lower_case(std::string text);

}  // namespace strata::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

// A DeepSpeed file as JSON, and its values as DeepSpeed reads them.
namespace strata::config {

// Replaces comments (//, /* */, #) and commas before closing brackets by blanks, which keeps line
// and column numbers.
std::string without_comments(std::string_view text);

// A value without members, and its path: "zero_optimization.stage".
struct Leaf {
  std::string key;
  const Json* value;
};

// All leaves of `root`, in the order of the file. They point into `root`.
std::vector<Leaf> leaves_of(const Json& root);

// A value as the text that an option reads (5e8 becomes a whole number); texts_of splits an array
// into its items.
std::string text_of(const Json& value);
std::vector<std::string> texts_of(const Json& value);

std::string lower_case(std::string text);

// Reads true, 1, "true", "yes", "on" and their opposites, in upper or lower case; nullopt for other
// values.
std::optional<bool> bool_of(const Json& value);

// Whether the value switches its key off: false, null, "none", "" or {}.
bool is_off(const Json& value);

}  // namespace strata::config

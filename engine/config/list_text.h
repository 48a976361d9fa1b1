// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/option_table.h"

// Options of several values, which may be given as one text.
namespace strata::config {

// Splits a list that is given as one text at its commas, except for those behind a backslash, and
// drops spaces around its parts. Several texts stay as they are, and so does a text of one part.
std::vector<std::string> split_list(const std::vector<std::string>& values);

// An array of a file as split_list() takes it: each part stays whole, whatever commas it has. `row`
// may be null.
std::vector<std::string> as_array(const OptionRow* row, std::vector<std::string> parts);

}  // namespace strata::config

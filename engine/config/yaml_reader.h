// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/config/json.h"

namespace strata::config {

// A YAML text as a JSON value: maps keep their order, aliases and merge keys are resolved, words
// such as yes and off are truth values as PyYAML reads them, and 1e-5 is a number. Throws Error
// (kConfig) that names the file, line and column when the text is not one YAML document, a name
// repeats, or it is too deep or large.
Json read_yaml(std::string_view text, const std::string& name);

bool is_yaml_name(std::string_view path);  // ends in .yaml or .yml

}  // namespace strata::config

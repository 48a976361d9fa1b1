// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/option_table.h"

namespace strata::config {

// Parses `values` (the parts of an array, or one text) into the row's field. Returns "" on success;
// otherwise the cause, as a phrase that follows the option's name, and the field is unchanged.
std::string assign(const OptionRow& row, const std::vector<std::string>& values, Options& options);

// The value as a user would write it.
std::string value_text(const OptionRow& row, const Options& options);

// As assign(), for a number that belongs to no option: parses it into `number`, within `range`.
std::string assign_number(std::string_view text, const OptionRange& range, double& number);

// Parses a whole number as options do; nullopt when they would refuse it.
std::optional<int64_t> parse_whole_number(std::string_view text);

// Copies the row's field from `from` to `to`.
void copy_value(const OptionRow& row, const Options& from, Options& to);

// "a number, above 0, at most 1", "a whole number, at least 1", "on or off": what assign() accepts.
std::string accepted_text(const OptionRow& row);

// The range of a number or size with its unit, "1 to 1024 segments"; empty for other types.
std::string limits_text(const OptionRow& row);

}  // namespace strata::config

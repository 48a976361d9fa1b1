// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/option_table.h"

namespace strata::config {

// Reads `values` (the parts of an array, or one text) into the row's field. Returns the cause when
// that is not possible, in words that follow the option's name; empty when it was. On failure the
// field is unchanged.
std::string assign(const OptionRow& row, const std::vector<std::string>& values, Options& options);

// The value as a user would write it; texts as they are.
std::string value_text(const OptionRow& row, const Options& options);

// As assign(), for a number that belongs to no option: into `number`, within `range`.
std::string assign_number(std::string_view text, const OptionRange& range, double& number);

// A text as options of whole numbers read it; nothing where they refuse it.
std::optional<int64_t> parse_whole_number(std::string_view text);

// Makes the field of `to` that of `from`.
void copy_value(const OptionRow& row, const Options& from, Options& to);

// "a number above 0 to 1", "a whole number from 1", "on or off": what assign() accepts.
std::string accepted_text(const OptionRow& row);

// "from 1 to 1024 segments": the range of numbers and sizes, with their unit; else empty.
std::string limits_text(const OptionRow& row);

}  // namespace strata::config

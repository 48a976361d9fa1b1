// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::config {

// The name of `names` that is meant: one that differs in a letter, else the only one that begins
// with `name`, else the nearest that differs in at most a third of the letters. Empty: there is
// none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

// Returns " (did you mean NEAREST?)"; when `nearest` is empty, " (OTHERWISE)"; when both are empty,
// "".
std::string did_you_mean(std::string_view nearest, std::string_view otherwise = {});

// Messages suggest names only for the first problems, because a file may be wrong in every line.
inline constexpr int kSuggestionsMax = 32;

}  // namespace strata::config

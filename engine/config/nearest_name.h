// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::config {

// The nearest of `names` within about a third of the letters of `name`; empty when none is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

// " (did you mean NEAREST?)", or " (OTHERWISE)" where `nearest` is empty, or nothing.
std::string did_you_mean(std::string_view nearest, std::string_view otherwise = {});

// A file may be wrong in every line; messages suggest names for the first problems only.
inline constexpr int kSuggestionsMax = 32;

}  // namespace strata::config

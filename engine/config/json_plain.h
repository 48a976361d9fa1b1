// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "engine/config/json.h"

namespace strata::config {

// The value of a text that is JSON within the limits, several times as fast as the library's
// parser, because records of data are many. nullopt for all others, whose mistake the library
// names, and for a few that are rare: objects of many members, numbers that need more than 18
// digits.
std::optional<Json> read_plain_json(std::string_view text, const JsonLimits& limits);

}  // namespace strata::config

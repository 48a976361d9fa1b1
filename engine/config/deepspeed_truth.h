// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "engine/config/json.h"

namespace strata::config {

// What DeepSpeed reads as a truth value: true, 1, "true", "yes", "on" and their opposites, in any
// case. Nothing for all else.
std::optional<bool> truth_of(const Json& value);

// A false truth value, null, "none", "" and {}: what switches a key off.
bool is_off(const Json& value);

}  // namespace strata::config

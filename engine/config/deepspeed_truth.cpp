// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed_truth.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/config/deepspeed_leaves.h"

namespace strata::config {

std::optional<bool> truth_of(const Json& value) {
  if (const auto truth = value.boolean()) return truth;
  if (const auto number = value.number()) {
    return *number == 0 || *number == 1 ? std::optional(*number == 1) : std::nullopt;
  }
  if (!value.is_string()) return std::nullopt;
  const std::string text = lower_case(value.string());
  constexpr std::array<std::string_view, 6> kTrue = {"1", "t", "true", "y", "yes", "on"};
  constexpr std::array<std::string_view, 6> kFalse = {"0", "f", "false", "n", "no", "off"};
  if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return false;
  return std::nullopt;
}

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_object()) return value.members().empty();
  if (const auto truth = truth_of(value)) return !*truth;
  return value.is_string() && (value.string() == "none" || value.string().empty());
}

}  // namespace strata::config

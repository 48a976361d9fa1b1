// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

// An option that is given, and that does nothing beside the others.
struct IdleOption {
  std::string_view name;
  // Nobody means it so: as a flag it is refused. What is harmless is told, and so is what a file
  // has for other flags than these.
  bool is_mistake = false;
  std::string text;  // "--min-lr-ratio has no effect: ..."
};

std::vector<IdleOption> find_idle_options(Command command, const Options& options);

}  // namespace strata::config

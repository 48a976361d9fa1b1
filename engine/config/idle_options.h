// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

// An option that is given and has no effect together with the others.
struct IdleOption {
  std::string_view name;
  // As a flag it is refused. Harmless options get a warning, and so do keys of a file, which may be
  // there for other commands.
  bool is_mistake = false;
  std::string text;  // "--min-lr-ratio has no effect: ..."
};

std::vector<IdleOption> find_idle_options(Command command, const Options& options);

}  // namespace strata::config

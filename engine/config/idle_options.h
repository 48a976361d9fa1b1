// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

// An option that is given but has no effect beside the other options.
struct IdleOption {
  std::string_view name;
  // When true, a flag is refused. A harmless option, or a key of a file that may serve other
  // commands, only gets a warning.
  bool is_mistake = false;
  std::string text;  // "--min-lr-ratio has no effect: ..."
};

std::vector<IdleOption> find_idle_options(Command command, const Options& options);

}  // namespace strata::config

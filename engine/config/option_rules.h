// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

// Two options that say one thing in two ways.
struct ExclusivePair {
  std::string_view first;
  std::string_view second;
};

std::span<const ExclusivePair> exclusive_options();

// What options that are each in range cannot mean together, and what a command cannot do without:
// one text a problem.
std::vector<std::string> find_conflicts(Command command, const Options& options);

}  // namespace strata::config

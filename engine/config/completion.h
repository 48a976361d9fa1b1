// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// Scripts with which a shell completes command lines, made from the option table.
namespace strata::config {

// A command that is not one of the table's, and what may follow it.
struct ExtraCommand {
  std::string name;
  std::string help;
  std::vector<std::string> words;
};

// For "bash", "zsh" or "fish", to be sourced. Throws Error (kUsage) for any other shell.
std::string completion_text(std::string_view shell, std::span<const ExtraCommand> extra);

}  // namespace strata::config

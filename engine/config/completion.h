// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// Scripts with which a shell completes command lines, made from the option table.
namespace strata::config {

// What stands behind a flag.
enum class FlagValue : uint8_t { kNothing, kChoice, kDirectory, kFile, kOther };

struct CompletedFlag {
  std::string name;  // without dashes
  std::string help;
  FlagValue value = FlagValue::kNothing;
  std::vector<std::string> choices = {};
  std::string metavar = {};
  bool value_may_lack = false;
};

// A command: what may follow it at once, and its flags.
struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<std::string> words = {};
  std::vector<CompletedFlag> flags = {};
};

// For "bash", "zsh" or "fish", to be sourced; with commands that are not of the option table.
// Throws Error (kUsage) for any other shell.
std::string completion_text(std::string_view shell, std::span<const CompletedCommand> extra);

}  // namespace strata::config

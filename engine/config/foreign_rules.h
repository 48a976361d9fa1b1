// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/deepspeed_rules.h"
#include "engine/config/json.h"

namespace strata::config {

// Programs whose configurations are read; each a bit.
enum ForeignTool : uint8_t {
  kAxolotl = 1,
  kLlamaFactory = 2,
  kMlxLm = 4,
  kTrl = 8,
};
std::string_view name_of(ForeignTool tool);

// The program that a configuration is of. Throws Error (kConfig) when no key of it tells.
ForeignTool tool_of(const Json& root, const std::string& name);

// What becomes of a key in the files of some programs: as DeepspeedRule.
struct ForeignRule {
  unsigned tools;
  std::string_view key;
  RuleKind kind;
  std::string_view text;
};

// The rule for a key: the rule with its name, otherwise the longest prefix that covers it. Null for
// unknown keys.
const ForeignRule* find_rule(ForeignTool tool, std::string_view key);

// The keys of a program that have a rule of their own.
std::vector<std::string_view> keys_of(ForeignTool tool);

// What a program assumes when its file lacks a key. A name with a space in it is no key: it is what
// the program always does.
struct ForeignDefault {
  ForeignTool tool;
  std::string_view key;
  std::string_view option;     // empty: what it assumes is refused
  std::string_view value;      // of the option; with a refusal, what to write for the key
  std::string_view note = "";  // what differs; with a refusal, what it assumes
};
std::span<const ForeignDefault> foreign_defaults();

}  // namespace strata::config

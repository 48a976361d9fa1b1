// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace strata::config {

enum class RuleKind : unsigned char {
  kSet,     // becomes the option `text`
  kIgnore,  // ignored for the reason `text`
  kOff,     // refused for the reason `text`, unless the value or a section above it is off
  kOn,      // always on here: refused when the value is off
  kCode,    // several keys together make an option: see deepspeed.cpp
};

// `key` names one key, or, with a * at its end, all keys with that prefix.
struct DeepspeedRule {
  std::string_view key;
  RuleKind kind;
  std::string_view text;
};

std::span<const DeepspeedRule> deepspeed_rules();

// The rule for a key: the rule with its name, otherwise the longest prefix that covers it. Null for
// unknown keys.
const DeepspeedRule* find_rule(std::string_view key);

// A value that DeepSpeed assumes when a file with an optimizer, or with one of `schedulers`, lacks
// a key.
struct DeepspeedDefault {
  std::string_view key;
  std::string_view option;           // empty: no option; `note` says what applies here
  std::string_view value;            // several parts are separated by commas
  std::string_view note = {};        // follows "DeepSpeed's default"
  std::string_view schedulers = {};  // types of schedulers; empty: a key of the optimizer
};

std::span<const DeepspeedDefault> deepspeed_defaults();

}  // namespace strata::config

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace strata::config {

enum class RuleKind : unsigned char {
  kSet,            // becomes the option `text`
  kIgnore,         // `text` says why
  kIgnoreDefault,  // without effect at a value that switches it off; else refused because of `text`
  kSection,        // every key below: refused because of `text`, unless `enabled` there is false
  kCode,           // several keys together make an option: see deepspeed.cpp
};

// `key` names one key, or all below it where it ends in ".*".
struct DeepspeedRule {
  std::string_view key;
  RuleKind kind;
  std::string_view text;
};

std::span<const DeepspeedRule> deepspeed_rules();

// What holds in DeepSpeed where a file with an optimizer, or with one of `schedulers`, does not say
// it.
struct DeepspeedDefault {
  std::string_view key;
  std::string_view option;           // empty where it has none: `note` says what it means
  std::string_view value;            // its parts with commas between
  std::string_view note = {};        // follows "DeepSpeed's default"
  std::string_view schedulers = {};  // types; empty: of the optimizer
};

std::span<const DeepspeedDefault> deepspeed_defaults();

// The rule of a key: the one with its name, else the longest that covers it; null for unknown keys.
const DeepspeedRule* find_rule(std::string_view key);

}  // namespace strata::config

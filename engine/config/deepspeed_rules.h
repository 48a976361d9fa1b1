// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace strata::config {

enum class RuleKind : unsigned char {
  kSet,     // becomes the option `text`
  kIgnore,  // `text` says why
  kOff,     // refused because of `text`, unless the value or a section above it is switched off
  kOn,      // always on here: refused where the value is off
  kCode,    // several keys together make an option: see deepspeed.cpp
};

// `key` names one key; with a * at its end, all keys that begin so.
struct DeepspeedRule {
  std::string_view key;
  RuleKind kind;
  std::string_view text;
};

std::span<const DeepspeedRule> deepspeed_rules();

// The rule of a key: the one with its name, else the longest that covers it; null for unknown keys.
const DeepspeedRule* find_rule(std::string_view key);

// What DeepSpeed assumes when a file with an optimizer, or with one of `schedulers`, lacks a key.
struct DeepspeedDefault {
  std::string_view key;
  std::string_view option;           // empty: there is no option, and `note` says what holds here
  std::string_view value;            // its parts with commas between
  std::string_view note = {};        // follows "DeepSpeed's default"
  std::string_view schedulers = {};  // types; empty: of the optimizer
};

std::span<const DeepspeedDefault> deepspeed_defaults();

}  // namespace strata::config

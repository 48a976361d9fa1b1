// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

enum class OptionType : uint8_t {
  kSwitch,    // a flag without a value
  kOnOff,     // on | off
  kInt,       // a whole number
  kFloat,     // a finite number
  kSize,      // bytes, as 24GiB
  kString,    // text or a path
  kOptional,  // a flag whose value may be left out
  kList,      // texts separated by commas; with `choices`, only those
  kTexts,     // texts, each with the flag before it
  kInts,      // whole numbers separated by commas
  kSizes,     // sizes separated by commas
  kEnum,      // one of `choices`
  kDevice,    // one of `choices`, a numbered device with a number behind it, as cuda:1
  kPair,      // two finite numbers separated by a comma
  kRates,     // two sizes a second separated by a comma
};

struct EnumField {
  void (*set)(Options&, int);
  int (*get)(const Options&);
};

// A flag and the text that may follow it.
struct OptionalField {
  bool Options::*flag;
  std::string Options::*value;
};

using OptionField =
    std::variant<bool Options::*, int64_t Options::*, double Options::*, std::string Options::*,
                 std::vector<std::string> Options::*, std::vector<int64_t> Options::*,
                 Betas Options::*, DriveLimits Options::*, EnumField, OptionalField>;

// The values that an option may have; for a pair or list, the values of each part.
struct OptionRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
};

// One row. `name` is the flag without its dashes; the TOML and JSON key is the name with '_' for
// '-'.
struct OptionRow {
  std::string_view name;
  OptionType type;
  OptionField field;
  uint32_t commands;         // bit 1 << Command
  std::string_view group;    // heading in the help
  std::string_view metavar;  // "SIZE"; empty for switches and enums
  std::string_view unit;     // "tokens"; empty: none
  OptionRange range;
  std::string_view unset_note;  // what the default means, when its value does not show it
  std::string_view help;        // what it does and why a user would change it
  std::span<const std::string_view> choices = {};
  bool may_be_empty = false;  // whether an empty text is a value
};

std::span<const OptionRow> option_table();

inline bool takes(const OptionRow& row, Command command) {
  return (row.commands >> static_cast<int>(command) & 1u) != 0;
}
// Whether its value may be several, with commas between them.
inline bool takes_several(const OptionRow& row) {
  return row.type == OptionType::kList || row.type == OptionType::kInts ||
         row.type == OptionType::kSizes;
}
// Whether its value is a path, or several.
bool is_path(const OptionRow& row);
std::string key_of(const OptionRow& row);

// The default of --host-memory.
inline constexpr std::string_view kHostMemoryNote = "85% of what this process may use";

// The row with the help, the default, the name of the value and the choices that `command` has for
// it.
OptionRow row_for(const OptionRow& row, Command command);

// The options that matter most for a command, in the order of its help.
std::vector<const OptionRow*> main_options(Command command);

// Finds an option by its flag, key or another name that we accept; '-' and '_' are the same. Null
// when there is none.
const OptionRow* find_option(std::string_view name);

// The option of `command` that other programs or commands call `name`; empty when there is none.
std::string_view called_elsewhere(std::string_view name, Command command);

// What to do instead of an option of this name, which no option replaces alone; else empty.
std::string_view advice_for_name(std::string_view name);

// The result of called_elsewhere, or else the option of `command` with the nearest name by edit
// distance; empty when none is near.
std::string_view nearest_option(std::string_view name, Command command);

}  // namespace strata::config

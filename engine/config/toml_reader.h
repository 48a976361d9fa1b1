// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::config {

// One key of a TOML file with its value as text: numbers in their shortest exact form, true and
// false, and the parts of an array of scalars one by one.
struct TomlEntry {
  std::string table;     // "" at the top, else the name of the [table] or [[table]]
  int table_index = -1;  // which element of a [[table]]; -1 elsewhere
  std::string key;
  std::vector<std::string> values;
  std::string where;            // "run.toml:3:1"
  bool is_empty_table = false;  // a [table] or [[table]] without keys: no key, no values
};

// Returns all entries in the order of the file. Throws Error (kConfig) with line and column when
// the text is not TOML or nests deeper than one table or one array. `name` is the file's name, for
// messages.
std::vector<TomlEntry> read_toml(std::string_view text, std::string_view name);

}  // namespace strata::config

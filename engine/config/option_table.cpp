// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_table.h"

#include <algorithm>
#include <vector>

#include "engine/config/option_rows.h"

namespace strata::config {

std::span<const OptionRow> option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> all;
    for (const auto part : {rows::of_training(), rows::of_running(), rows::of_others()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

bool is_path(const OptionRow& row) {
  const std::string_view kinds[] = {"DIR",    "DIR[,DIR]", "PATH[,PATH]", "FILE",
                                    "[FILE]", "PATH",      "[RUN]",       "RUN"};
  return std::ranges::find(kinds, row.metavar) != std::end(kinds);
}

}  // namespace strata::config

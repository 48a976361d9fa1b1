// SPDX-License-Identifier: Apache-2.0
#include "engine/base/plural.h"

namespace strata {

std::string plural(int64_t count, std::string_view thing) {
  std::string word(thing);
  if (count == 1) return word;
  if (word.ends_with("ry")) {
    word.pop_back();
    return word + "ies";
  }
  return word + (word.ends_with("ch") ? "es" : "s");
}

std::string counted(int64_t count, std::string_view thing) {
  return std::to_string(count) + " " + plural(count, thing);
}

}  // namespace strata

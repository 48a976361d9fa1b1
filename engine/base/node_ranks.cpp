// SPDX-License-Identifier: Apache-2.0
#include "engine/base/node_ranks.h"

#include <algorithm>

namespace strata {

int ranks_together(std::span<const int> ranks, int64_t ranks_on_node) {
  const auto node_of = [&](size_t place) {
    return ranks_on_node > 0 ? ranks[place] / ranks_on_node : 0;
  };
  size_t together = 1;
  while (together < ranks.size() && node_of(together) == node_of(0)) ++together;
  for (size_t place = together; place < ranks.size(); ++place) {
    const bool begins = place % together == 0;
    if (begins == (node_of(place) == node_of(place - 1))) return 1;
  }
  return ranks.size() % together == 0 ? static_cast<int>(together) : 1;
}

}  // namespace strata

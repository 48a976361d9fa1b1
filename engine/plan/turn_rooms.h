// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::plan {

// Memory that is used twice in a step: the held gradient of a lower unit lives from its backward to
// its update early in the next forward, and what an upper unit keeps for its backward lives from
// late in forward to early in backward. So the one may lie where the other does, at no wait: on the
// compute lane the upper unit's backward comes before the lower unit's, and the lower unit's update
// before the upper unit's forward.
class TurnRooms {
 public:
  // The range [at, at + bytes) holds the gradient of a segment of `unit`. Units and ranges ascend.
  void add(int unit, int64_t at, int64_t bytes);

  // Offset of `bytes` that lie over gradients of units below `unit`; -1 when there are not enough
  // in a row. The lowest first: they serve every unit.
  int64_t take(int unit, int64_t bytes);

  // Whether nothing was taken of the room that was added at `at`.
  bool is_free(int64_t at) const;

 private:
  struct Room {
    int unit;
    int64_t at;
    int64_t end;
    bool whole = true;
  };
  void remove(std::size_t first, std::size_t last);

  std::vector<Room> rooms_;  // ascending, from first_ on
  std::size_t first_ = 0;
};

}  // namespace strata::plan

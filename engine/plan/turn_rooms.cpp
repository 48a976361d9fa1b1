// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/turn_rooms.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::plan {

void TurnRooms::add(int unit, int64_t at, int64_t bytes) {
  STRATA_CHECK(rooms_.empty() || (rooms_.back().unit <= unit && rooms_.back().end <= at));
  if (bytes > 0) rooms_.push_back({unit, at, at + bytes});
}

int64_t TurnRooms::take(int unit, int64_t bytes) {
  for (std::size_t first = first_; first < rooms_.size(); ++first) {
    const int64_t at = rooms_[first].at;
    std::size_t last = first;
    while (last + 1 < rooms_.size() && rooms_[last].end - at < bytes &&
           rooms_[last + 1].at == rooms_[last].end) {
      ++last;
    }
    if (rooms_[last].unit >= unit) return -1;
    if (rooms_[last].end - at < bytes) continue;
    rooms_[last].at = at + bytes;
    rooms_[last].whole = false;
    const bool used_up = rooms_[last].at == rooms_[last].end;
    remove(first, last + (used_up ? 1 : 0));
    return at;
  }
  return -1;
}

// What lies below [first, last) moves up: it was looked at a moment ago, and is less than all
// above.
void TurnRooms::remove(std::size_t first, std::size_t last) {
  const auto begin = rooms_.begin();
  std::move_backward(begin + static_cast<int64_t>(first_), begin + static_cast<int64_t>(first),
                     begin + static_cast<int64_t>(last));
  first_ += last - first;
}

bool TurnRooms::is_free(int64_t at) const {
  const auto room =
      std::lower_bound(rooms_.begin() + static_cast<int64_t>(first_), rooms_.end(), at,
                       [](const Room& one, int64_t wanted) { return one.at < wanted; });
  return room != rooms_.end() && room->at == at && room->whole;
}

}  // namespace strata::plan

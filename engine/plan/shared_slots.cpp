// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/shared_slots.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::plan {

void SharedSlots::add(int unit, int64_t at, int64_t bytes) {
  STRATA_CHECK(slots_.empty() || (slots_.back().unit <= unit && slots_.back().end <= at));
  if (bytes > 0) slots_.push_back({unit, at, at + bytes});
}

int64_t SharedSlots::take(int unit, int64_t bytes) {
  for (std::size_t first = first_; first < slots_.size(); ++first) {
    const int64_t at = slots_[first].at;
    std::size_t last = first;
    while (last + 1 < slots_.size() && slots_[last].end - at < bytes &&
           slots_[last + 1].at == slots_[last].end) {
      ++last;
    }
    if (slots_[last].unit >= unit) return -1;
    if (slots_[last].end - at < bytes) continue;
    slots_[last].at = at + bytes;
    slots_[last].untouched = false;
    const bool used_up = slots_[last].at == slots_[last].end;
    remove(first, last + (used_up ? 1 : 0));
    return at;
  }
  return -1;
}

// Moves the slots below [first, last) up, because they are fewer than those above, and take() has
// just read them.
void SharedSlots::remove(std::size_t first, std::size_t last) {
  const auto begin = slots_.begin();
  std::move_backward(begin + static_cast<int64_t>(first_), begin + static_cast<int64_t>(first),
                     begin + static_cast<int64_t>(last));
  first_ += last - first;
}

bool SharedSlots::is_free(int64_t at) const {
  const auto slot =
      std::lower_bound(slots_.begin() + static_cast<int64_t>(first_), slots_.end(), at,
                       [](const Slot& one, int64_t wanted) { return one.at < wanted; });
  return slot != slots_.end() && slot->at == at && slot->untouched;
}

}  // namespace strata::plan

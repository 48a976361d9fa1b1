// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/ring.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::plan {

// First position at or after `from` where no live slot is in the way; -1 when there is none before
// the end of the ring.
int64_t Ring::find_room(int64_t from, int64_t bytes) const {
  int64_t at = from;
  bool moved = true;
  while (moved && at + bytes <= bytes_) {
    moved = false;
    for (const Slot& slot : slots_) {
      if (slot.live && slot.begin < at + bytes && at < slot.end) {
        at = slot.end;
        moved = true;
      }
    }
  }
  return at + bytes <= bytes_ ? at : -1;
}

int64_t Ring::take(int64_t bytes, int key) {
  int64_t at = find_room(head_, bytes);
  if (at < 0) at = find_room(0, bytes);
  if (at < 0) {
    throw Error(
        ErrorCode::kDoesNotFit,
        fmt::format("plan: {} of {}: no room for {} more that must be live at once (raise the "
                    "memory budget)",
                    name_, format_bytes(bytes_), format_bytes(bytes)));
  }
  std::erase_if(slots_, [&](const Slot& slot) { return slot.begin < at + bytes && at < slot.end; });
  slots_.push_back({at, at + bytes, key, true});
  head_ = at + bytes;
  return begin_ + at;
}

int64_t Ring::reuse(int key) {
  for (Slot& slot : slots_) {
    if (slot.key != key) continue;
    slot.live = true;
    return begin_ + slot.begin;
  }
  return -1;
}

void Ring::release(int key) {
  for (Slot& slot : slots_) {
    if (slot.key == key) slot.live = false;
  }
}

void Ring::reset() {
  for (const Slot& slot : slots_) STRATA_CHECK(!slot.live);
  slots_.clear();
  head_ = 0;
}

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/slot_ring.h"

#include <fmt/format.h>

#include <iterator>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::plan {

// The first slot that ends after `at`.
SlotRing::Slots::iterator SlotRing::first_beyond(int64_t at) {
  auto slot = slots_.upper_bound(at);
  if (slot != slots_.begin() && std::prev(slot)->second.end > at) --slot;
  return slot;
}

// The first position at or after `from` with `bytes` bytes that no live slot uses; -1 when there is
// none before the end of the ring.
int64_t SlotRing::find_room(int64_t from, int64_t bytes) {
  int64_t at = from;
  for (auto slot = first_beyond(from); slot != slots_.end() && slot->first < at + bytes; ++slot) {
    if (slot->second.live) at = slot->second.end;
  }
  return at + bytes <= bytes_ ? at : -1;
}

int64_t SlotRing::take(int64_t bytes, int key) {
  int64_t at = find_room(head_, bytes);
  if (at < 0) at = find_room(0, bytes);
  if (at < 0) {
    throw Error(
        ErrorCode::kDoesNotFit,
        fmt::format("plan: {} of {}: no room for {} more that must be live at once (raise the "
                    "memory budget)",
                    name_, format_bytes(bytes_), format_bytes(bytes)));
  }
  for (auto slot = first_beyond(at); slot != slots_.end() && slot->first < at + bytes;) {
    places_.erase(slot->second.key);
    slot = slots_.erase(slot);
  }
  // Older bytes with the same key are not used again.
  if (const auto before = places_.find(key); before != places_.end()) {
    STRATA_CHECK(!slots_.at(before->second).live);
    slots_.erase(before->second);
  }
  slots_[at] = {at + bytes, key, true};
  places_[key] = at;
  head_ = at + bytes;
  return begin_ + at;
}

int64_t SlotRing::reuse(int key) {
  const auto place = places_.find(key);
  if (place == places_.end()) return -1;
  slots_.at(place->second).live = true;
  return begin_ + place->second;
}

void SlotRing::release(int key) {
  if (const auto place = places_.find(key); place != places_.end()) {
    slots_.at(place->second).live = false;
  }
}

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

namespace strata::plan {

// The planner's ring buffer: a range of an arena that is handed out as slots in a circle. A slot is
// live from take() to release(). A released slot keeps its bytes, and can be taken again by its
// key, until another slot overwrites them.
class SlotRing {
 public:
  SlotRing() = default;
  SlotRing(const char* name, int64_t begin, int64_t bytes)
      : name_(name), begin_(begin), bytes_(bytes) {}

  // Offset of a new live slot; `key` names its content. Throws Error{kDoesNotFit} when the live
  // slots leave no room.
  int64_t take(int64_t bytes, int key);

  // Offset of the slot with this key, made live again; -1 when its bytes were overwritten.
  int64_t reuse(int key);

  void release(int key);

  int64_t bytes() const { return bytes_; }

 private:
  struct Slot {
    int64_t end;
    int key;
    bool live;
  };
  using Slots = std::map<int64_t, Slot>;

  Slots::iterator first_beyond(int64_t at);
  int64_t find_room(int64_t from, int64_t bytes);

  const char* name_ = "";
  int64_t begin_ = 0;
  int64_t bytes_ = 0;
  int64_t head_ = 0;                         // relative to begin_
  Slots slots_;                              // by start, without overlap
  std::unordered_map<int, int64_t> places_;  // by key: start of its slot
};

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::plan {

// Slots of held gradients in which other units keep activations. The held gradient of a lower unit
// lives from its backward to its update early in the next forward. What an upper unit keeps for its
// backward lives from late in forward to early in backward. Both may use the same memory, and need
// no wait for that: on the compute lane the upper unit's backward comes before the lower unit's,
// and the lower unit's update before the upper unit's forward.
class SharedSlots {
 public:
  // The range [at, at + bytes) holds the gradient of a segment of `unit`. Units and ranges ascend.
  void add(int unit, int64_t at, int64_t bytes);

  // Offset of `bytes` in slots of units below `unit`; -1 when not enough of them touch. Lower slots
  // are taken first, because every unit above may use them.
  int64_t take(int unit, int64_t bytes);

  // Whether nothing was taken from the slot that was added at `at`.
  bool is_free(int64_t at) const;

 private:
  struct Slot {
    int unit;
    int64_t at;
    int64_t end;
    bool untouched = true;
  };
  void remove(std::size_t first, std::size_t last);

  std::vector<Slot> slots_;  // ascending, from first_ on
  std::size_t first_ = 0;
};

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/interval_map.h"
#include "engine/plan/op.h"

namespace strata::plan {

// Derives the waits of ops from what they touch. Ops are added in an order whose serial execution
// is correct. Every op then waits for the ops that wrote what it reads and for those that touched
// what it overwrites, except where its lane or another wait already implies that.
//
// A plan made this way cannot race. The verifier proves this independently of this class.
class Dependencies {
 public:
  // Appends the waits of the next op on `lane`. Positive counts are within the current copy; others
  // are relative to the end of the copy before (see Wait).
  void add(Lane lane, std::span<const Access> accesses, std::vector<Wait>& waits);

  // Forgets all ops, of each lane of which about `expected` will be added; keeps the memory.
  void clear(const std::array<size_t, kLaneCount>& expected);

  // The ops added next belong to another copy of the same program, or to the next program.
  void start_copy();

 private:
  using Clock = std::array<int32_t, kLaneCount>;  // completed ops known, by lane, over all copies

  // The ops that touched a range last.
  struct Users {
    int32_t writer_lane = -1;
    int32_t writer_count = 0;
    Clock readers = {};
    bool operator==(const Users&) const = default;
  };

  Clock touch(std::span<const Access> accesses, Lane lane, int32_t count);

  std::array<IntervalMap<Users>, kArenaCount> users_;
  std::array<std::vector<Clock>, kLaneCount>
      known_;                                  // by op of a lane: known once it has completed
  std::array<Clock, kLaneCount> issued_ = {};  // known when the lane issues its next op
  Clock copy_start_ = {};
};

}  // namespace strata::plan

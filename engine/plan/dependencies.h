// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/plan/op.h"

namespace strata::plan {

// Derives the waits of ops from what they touch. Ops are added in an order whose serial execution
// is correct; every op then waits for the ops that wrote what it reads, and for those that touched
// what it overwrites, less what its lane or another wait already implies.
//
// A plan made this way cannot race. The verifier proves that again with nothing of this class.
class Dependencies {
 public:
  // Waits of an op that is next on `lane`. Counts are within the current copy when positive, else
  // relative to the end of the copy before (see Wait).
  std::vector<Wait> add(Lane lane, std::span<const Access> accesses);

  // What comes next is another copy of the same program (or the next program).
  void start_copy();

 private:
  using Clock = std::array<int32_t, kLaneCount>;  // completed ops known, by lane, over all copies

  // Who touched a range last.
  struct Cell {
    int64_t end = 0;
    int8_t writer_lane = -1;
    int32_t writer_count = 0;
    Clock readers = {};
  };
  using Cells = std::map<int64_t, Cell>;

  static void split(Cells& cells, int64_t at);
  static Cells::iterator cover(Cells& cells, int64_t begin, int64_t end);
  void require(const Access& access, Clock& need);
  void record(const Access& access, Lane lane, int32_t count);
  std::vector<Wait> reduce(Lane lane, const Clock& need) const;

  std::array<Cells, kArenaCount> cells_;
  std::array<std::vector<Clock>, kLaneCount>
      known_;                                  // by op of a lane: known once it has completed
  std::array<Clock, kLaneCount> issued_ = {};  // known when the lane issues its next op
  Clock copy_start_ = {};
};

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/plan/slot_ring.h"
#include "engine/plan/update_schedule.h"

namespace strata::plan {

// How gradients are summed over micro-batches and ranks, where they wait for their update, and what
// is decided from them.
class GradientPath : BuilderPiece {
 public:
  GradientPath(Building& building, WeightsPath& weights, UpdateSchedule& updates);

  void begin(int segment);
  // Accesses of the open op: one more contribution, also to that of norms where products are
  // delayed, of which the last of these products reads the sum.
  void add(int segment);
  void add_norms(int segment);
  void read_norms_of(int segment);
  // After a contribution that others may follow: a sum that is not complete leaves memory where its
  // whole does, and begin() brings it back; a complete one is finished.
  void leave(int segment);
  void finish(int segment);  // after the last contribution; in backward the update follows
  // In a step, decides on the update from the norms of all gradients. In a drain, notes that no
  // update is pending any more.
  void decide();

 private:
  void sum_whole(int segment);
  void norm_gradient(Mode mode, int segment);
  Place reduce(int segment);
  Place reduce_over(GroupName group, int segment, const Place& from, int reduced);
  void bring_back(int segment);
  Place download(int segment, const Place& from, const Value& value);
  void norm_partial(int segment, const Place& gradient);
  void move(OpKind kind, Lane lane, const Place& from, const Place& to, const Value& value,
            const std::vector<Piece>& pieces);
  void spill(const Place& gradient, const Value& value);
  void update_in_backward(int segment, const Place& gradient);
  void pass_norm(Op& op, const Access& from, const Access& to);
  void download_norms();
  void reduce_norms();
  void reduce_norms_over(GroupName group, int reduced);
  void sum_norms();
  // Accesses of the open op
  void read_norms();
  void norm_sum(Mode mode);

  WeightsPath& weights_;
  UpdateSchedule& updates_;
  SlotRing ring_, device_ring_;
  std::vector<Place> accumulators_;  // by segment: where its gradient is summed now
  std::vector<int> summed_;          // by segment: contributions emitted so far
  std::vector<int> norms_summed_;    // the same of norms' gradients where products are delayed
};

}  // namespace strata::plan

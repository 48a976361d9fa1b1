// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/node_ranks.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Counts bytes of values that a rank sends to others, as comm::Group::sent() does. Of a group of N
// ranks, gathering V bytes sends V (N - 1) / N, and so does a sum of which each rank keeps its
// part; one that every rank keeps sends twice that. To other machines go (n - 1) / N of V, where
// the group is on n. Where pieces do not divide evenly, ranks differ by some elements. Values of a
// device that are larger than the bounce buffer are cut, which changes that remainder.
class SentCounter {
 public:
  explicit SentCounter(const Mesh& mesh);
  // Of the rank of this one's stage that sends most to other machines, in each group by itself: the
  // others wait for it. They differ where a group has more ranks on one machine than on another.
  static SentCounter of_slowest(const Mesh& mesh);

  // Of an op on a lane between ranks; without the sum of norms over a pipeline.
  SentBytes of(const Program& program, const Op& op) const;
  SentBytes of_norm_sum(const model::Stage& stage) const;
  // Bytes sent for each that this rank gives to every other of a group, as in a gather.
  const SentBytes& of_a_byte(GroupName group) const {
    return circles_[static_cast<size_t>(group)].of_a_byte;
  }
  // What the op waits for: that, and what a Recv receives.
  SentBytes moved_by(const Program& program, const Op& op) const;

 private:
  // The members of a rank's group; those of a machine follow each other, `near` on each.
  struct Circle {
    Mesh::Members members;
    int near = 1;
    int own = 0;                    // the rank's place
    std::vector<bool> near_places;  // on its machine, also where `near` is 1
    SentBytes of_a_byte;
    int nodes() const { return members.size / near; }
    bool is_near(int place) const { return near_places[static_cast<size_t>(place)]; }
  };

  static Circle circle_of(const Mesh& mesh, GroupName group);
  const Circle& circle_of(const Op& op) const { return circles_[static_cast<size_t>(op.group)]; }
  SentBytes of_message(const Program& program, const Op& op) const;
  SentBytes of_sum(const Program& program, const Op& op) const;
  SentBytes of_whole_sum(const Circle& circle, int64_t bytes, int64_t width, int64_t wire) const;

  Mesh mesh_;
  std::array<Circle, kGroupCount> circles_;
};

// Whether an op between ranks exchanges values of a device.
bool on_device(const Program& program, const Op& op);

// In one run of a program: by the plan's rank, and by all of its stage, if each has this plan.
SentBytes sent_bytes(const Plan& plan, const model::ModelSpec& spec, ProgramName name);
SentBytes sent_by_stage(const Plan& plan, const model::ModelSpec& spec, ProgramName name);

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.h"

// When the stages of a pipeline pass which windows of micro-batches. All ranks derive this from the
// same few numbers, so neighbours agree on every message between them.
namespace strata::plan {

// A stage's pass through a window, forward or back. In a tick of a clock that all stages share, a
// stage does one phase; it begins in a later tick than the phase that gives what it receives.
struct Phase {
  bool backward = false;
  int window = 0;
  int tick = 0;
};

// What a stage passes on at the end of a phase: outputs of the window's micro-batches to the next
// stage, or their gradients to the one before.
struct Message {
  bool backward = false;
  int sender = 0;  // a stage
  int window = 0;
  int tick = 0;  // of the sender's phase
};

struct StageSchedule {
  std::vector<Phase> phases;
  // By phase, and one entry more: what the stage receives before it sends anything of the phase, in
  // ascending numbers. The phase needs all that it reads from before it.
  std::vector<std::vector<Message>> receipts;
  int ticks = 0;  // of all stages

  // The most windows at a time of which the stage has: what it keeps for its backward; outputs of
  // the stage before; gradients of its outputs. A window has place (window % count) of each.
  int kept = 1;
  int received = 1;
  int gradients = 1;
};

// With `backward` of a step, else of a program of forward passes.
StageSchedule schedule_stage(int stage, int stages, const Windows& windows, bool backward);

// Numbers of ops on lanes of is_comm_lane() ascend by tick. In a tick those of collectives among
// ranks of one stage come first, then messages forward of even stages, of odd ones, then messages
// back of even and of odd ones: a stage has at most one message of each of these four in a tick.
inline constexpr int kNumbersOfTick = 1 << 17;
inline constexpr int kMessageNumbers = kNumbersOfTick / 8;
inline constexpr int32_t first_number_of(int tick) {
  return tick * kNumbersOfTick;
}
int32_t number_of(const Message& message, int micro_batch_in_window);

// The number of the sum of all stages' norm partials, which follows all else.
int32_t number_of_norm_sum(const StageSchedule& schedule);

// The time from the begin of a step to its end on all stages, each of which alone takes stage_s for
// its part: `forward_share` of that in forward phases, and as long in each window.
double pipeline_step_s(std::span<const double> stage_s, double forward_share,
                       const Windows& windows);

}  // namespace strata::plan

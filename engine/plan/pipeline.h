// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.h"

// When the ranks of a pipeline pass which windows of micro-batches through which sections of the
// model. All ranks derive this from the same few numbers, so neighbours agree on every message
// between them.
namespace strata::plan {

// A pass of a window through a section, forward or back; or the products that its backward delayed,
// which give nothing to other ranks. In a tick of a clock that all ranks share,
// a rank does one phase; it begins in a later tick than the phase that gives what it receives. At
// its end a rank sends what the phase gave: outputs of the window's micro-batches to the next
// section's rank, or their gradients to that of the section before.
struct Phase {
  bool backward = false;
  int section = 0;  // on the route
  int window = 0;
  int tick = 0;
  bool products = false;  // of a window that went back
};

// The most windows at a time of which a section has: what it keeps for its backward; outputs of the
// section before; gradients of its outputs; operands of delayed products. A window has place
// (window % count) of each.
struct WindowsAtOnce {
  int kept = 1;
  int received = 1;
  int gradients = 1;
  int operands = 1;
};

// Whether the products of a segment's backward are ops of their own, in phases of their own.
bool delays_products(const Windows& windows, const model::Segment& segment);

struct StageSchedule {
  std::vector<Phase> phases;
  // By phase, and one entry more: the phases of others whose results the rank receives before it
  // sends anything of this phase, in ascending numbers. The phase needs all that it reads from
  // before it.
  std::vector<std::vector<Phase>> receipts;
  int ticks = 0;                        // of all ranks
  std::vector<WindowsAtOnce> sections;  // of the rank, ascending
};

// With `backward` of a step, else of a program of forward passes. Throws Error (kConfig) for more
// windows than ticks have numbers.
StageSchedule schedule_stage(const model::Route& route, int rank, const Windows& windows,
                             bool backward);

// Numbers of ops on lanes of is_comm_lane() ascend by tick. In a tick those of collectives among
// ranks of one stage come first, then messages forward, then those back. Messages of each direction
// come in the order of three colors of their senders, of which neighbours on the ring of ranks have
// different ones. So no two messages of a rank have one number.
inline constexpr int64_t kNumbersOfTick = int64_t{1} << 32;  // more than a plan has ops
inline constexpr int64_t kMessageNumbers = kNumbersOfTick / 16;
inline constexpr int64_t first_number_of(int tick) {
  return tick * kNumbersOfTick;
}
int64_t number_of(const model::Route& route, const Phase& sender, int micro_batch_in_window);

// The number of the sum of all stages' norm partials, which follows all else.
int64_t number_of_norm_sum(const StageSchedule& schedule);

// What a section's phases of a step take when they wait for no other. `backward` has delayed
// products, too, where they have no phase of their own.
struct SectionSeconds {
  double forward = 0;
  double backward = 0;
  double products = 0;
};

// The time from the begin of a step to its end on all ranks, whose phases take as long in each
// window. The last message of a phase reaches another rank hop_s after it.
double pipeline_step_s(const model::Route& route, std::span<const SectionSeconds> sections,
                       const Windows& windows, double hop_s = 0);

}  // namespace strata::plan

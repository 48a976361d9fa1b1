// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/plan/rates.h"

// A program's time on a virtual clock, by discrete events. No hardware, no threads, no randomness:
// the same plan and rates give the same result.
//
// An op is issued when its lane allows (a serial lane: the op before is done; the others: fewer
// than Plan::io_depth ops are issued and not yet published) and all its waits hold; lanes publish
// in plan order. Copies of `step` follow each other without a pause, as the waits allow; a copy of
// any other program starts when the one before has ended.
//
// Durations: fetches and spills share the drive (drive_model.h); compute ops take flops, optimizer
// ops bytes of memory traffic, and these two lanes share the cores as Rates says; the rest takes
// bytes over the rate of its link plus a latency. An op of several chunks takes the latency or
// overhead of each. Convert and Save, on the optimizer lane, take
// bytes at the drive's rate. An op of no bytes or flops takes its overhead.
namespace strata::plan {

struct SimulationOptions {
  int copies = 4;
  bool pending = true;      // an update is pending at every start: predicated ops run
  bool keep_times = false;  // fill SimulationResult::times
};

struct PredictedTime {
  double begin_s = 0;  // issued
  double end_s = 0;    // done, perhaps before it is published
};

// Lane by lane. `stall` is the time that the compute lane waited: `direct` by the lane it waited
// for; `root` by the lane at the end of the chain, which was working while every lane before it
// waited.
struct Stall {
  std::array<double, kLaneCount> direct_s = {};
  std::array<double, kLaneCount> root_s = {};
  double total_s() const;
};

struct SimulationResult {
  // Per copy, over the counted copies: without the first and (where there are three and more) the
  // last, which begin and end without a neighbour.
  double step_s = 0;
  std::array<double, kLaneCount> busy_s = {};  // at least one op issued and not done
  double drive_read_s = 0;                     // bytes are moving
  double drive_write_s = 0;
  Stall stall;

  std::array<int64_t, kLaneCount> bytes = {};  // of one copy, skipped ops left out
  double flops = 0;
  std::vector<double> copy_end_s;    // from the start of the first copy
  std::vector<PredictedTime> times;  // of op i of copy c at [c * ops + i]

  // Why it stopped before the end: no lane could go on. Empty for every plan that the verifier
  // accepts.
  std::string blocked;
};

SimulationResult simulate(const Plan& plan, ProgramName name, const Rates& rates,
                          const SimulationOptions& options = {});

// Instead of rates: op i takes duration_s[i] from issue to end, whatever else is going on.
SimulationResult simulate(const Plan& plan, ProgramName name, std::span<const double> duration_s,
                          const SimulationOptions& options = {});

}  // namespace strata::plan

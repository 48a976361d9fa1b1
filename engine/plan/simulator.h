// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/plan/rates.h"

// Simulates a program on a virtual clock by discrete events. It uses no hardware, threads or random
// numbers: the same plan and rates give the same result.
//
// An op is issued when its lane is ready and all its waits hold. A serial lane is ready when its
// previous op is done; another lane when fewer than Plan::io_depth of its ops are issued and not
// yet published. Lanes publish in plan order. Copies of `step` follow each other without a pause,
// as the waits allow; a copy of any other program starts when the one before has ended.
//
// Durations: fetches and spills share the drive (drive_model.h); compute ops take flops, optimizer
// ops bytes of memory traffic, and these two lanes share the cores as Rates says. An exchange takes
// what the rank sends (Rates::exchange_s), the rest bytes over the rate of its link, both plus a
// latency. An op of several chunks takes the latency or overhead of each. Convert and Save, on the
// optimizer lane, take bytes at the drive's rate. An op of no bytes or flops takes its overhead.
namespace strata::plan {

struct SimulationOptions {
  int copies = 4;
  bool pending = true;      // an update is pending at each start, so predicated ops run
  bool keep_times = false;  // fill SimulationResult::times
};

struct PredictedTime {
  double begin_s = 0;  // when the op is issued
  double end_s = 0;    // when it is done, which may be before it is published
};

// The time that the compute lane waited, by lane: `direct` by the lane that it waited for; `root`
// by the lane at the end of the chain of waits, which was working while all others waited.
struct Stall {
  std::array<double, kLaneCount> direct_s = {};
  std::array<double, kLaneCount> root_s = {};
  double total_s() const { return std::accumulate(direct_s.begin(), direct_s.end(), 0.0); }
};

// What can work at the same time in a step. A set of them is a sum of bits.
enum Worker : uint32_t {
  kComputeWorks = 1,
  kOptimizerWorks = 2,
  kDrivesRead = 4,  // bytes are moving
  kDrivesWrite = 8,
  kLinkMoves = 16,      // between host and device
  kRanksExchange = 32,  // collectives
};
using Workers = uint32_t;
inline constexpr size_t kWorkerSets = 64;

struct SimulationResult {
  // For each copy, without the first and, with three or more copies, the last, which have no
  // neighbour on one side.
  double step_s = 0;
  std::array<double, kLaneCount> busy_s = {};      // with an op issued and not done
  std::array<double, kWorkerSets> working_s = {};  // by set: it works, and nothing else
  Stall stall;

  std::array<int64_t, kLaneCount> bytes = {};  // of one copy, skipped ops left out
  bool uses_nvme = false,
       reads_files = false;  // what the drives do: scratch, the model's own files
  double flops = 0;
  std::vector<double> copy_end_s;    // from the start of the first copy
  std::vector<PredictedTime> times;  // of op i of copy c at [c * ops + i]

  // Why the simulation stopped early, because no lane could continue. Empty for every plan that the
  // verifier accepts.
  std::string blocked;

  // The time in which any of `workers` works.
  double any_works_s(Workers workers) const {
    double sum = 0;
    for (Workers set = 0; set < kWorkerSets; ++set) {
      if ((set & workers) != 0) sum += working_s[set];
    }
    return sum;
  }
};

SimulationResult simulate(const Plan& plan, ProgramName name, const Rates& rates,
                          const SimulationOptions& options = {});

// Uses durations instead of rates: op i takes duration_s[i] from issue to end, independent of other
// ops.
SimulationResult simulate(const Plan& plan, ProgramName name, std::span<const double> duration_s,
                          const SimulationOptions& options = {});

}  // namespace strata::plan

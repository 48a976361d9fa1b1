// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/plan/lower_bound.h"
#include "engine/plan/planner.h"
#include "engine/plan/rates.h"
#include "engine/plan/simulator.h"

namespace strata::bench {

// What all runs of one program have in common.
struct Bench {
  model::ModelSpec spec;
  int threads = 1;
  int io_depth = 8;
  std::string directory;  // scratch
  bool allow_memory_filesystem = false;
  bool time_kernels = false;  // with timed_backend()
};

// One way to train the model.
struct Way {
  std::string name;
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape = {1, 128};
  int micro_batches = 1;
  plan::OptimizerMode mode = plan::OptimizerMode::kDeferred;
  bool nvme = false;  // else everything stays in memory
  int64_t host_bytes = plan::kNoLimit;
  io::RateLimits limits = {};
  bool may_keep = true;
  double clip = 1.0;
};

plan::PlannedRun plan_way(const Bench& bench, const Way& way, const plan::Rates& rates);

// The arithmetic that a plan has, what it keeps and what it recomputes, with all state in memory.
plan::PlannedRun in_memory(const Bench& bench, Way way, const plan::PlannedRun& like);

// A plan with an executor: random weights, random tokens.
class Run {
 public:
  Run(const Bench& bench, const Way& way, const plan::Rates& rates);
  Run(const Bench& bench, const Way& way, plan::PlannedRun planned);
  ~Run();

  const plan::PlannedRun& planned() const { return planned_; }
  const plan::Plan& plan() const { return planned_.plan; }
  model::SegmentKind kind_of(int segment) const {
    return bench_.spec.segments[static_cast<size_t>(segment)].kind;
  }

  // So many steps, each submitted before the one before is over. Returns the seconds of each step
  // but the first and the last, which have no neighbour: from the end of the step before to its
  // own.
  std::vector<double> burst(int steps);

  // One step with nothing pending before it and nothing after: from the start of its first compute
  // op to the end of its last. The update is made afterwards and not counted.
  struct Seconds {
    double clock_s = 0;
    double processor_s = 0;  // of all threads, over their number
  };
  Seconds forward_backward();

  // The last counted step of the last burst, or the last forward and backward, with times.
  const exec::Instance& steady() const { return *steady_; }

 private:
  std::unique_ptr<exec::Instance> step();
  void run_program(plan::ProgramName name, exec::StateSource* source);

  const Bench& bench_;
  const Way way_;
  const plan::PlannedRun planned_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::Instance> steady_;
  int64_t steps_ = 0;
};

// The step time that no plan of this way beats at these rates.
plan::LowerBound lower_bound_of(const Bench& bench, const Way& way, const plan::Plan& plan,
                                const plan::Rates& rates);

// Operations of the compute lane in one step, and bytes to and from NVMe while an update is
// pending.
double flops_of(const plan::Plan& plan);
struct NvmeBytes {
  int64_t read = 0;
  int64_t written = 0;
  int64_t spilled_gradients = 0;  // written; each is read too
};
NvmeBytes nvme_bytes_of(const plan::Plan& plan);
NvmeBytes nvme_bytes_of(const exec::Instance& instance);

// Bytes that a step moves where nine of ten planes are on NVMe: what rho is defined by, so that a
// plan that moves less is not compared with a slower drive.
double traffic_of_planes(const Bench& bench, const Way& way);

// Where the time of a step went, by lane and kind of op.
void print_profile(const Run& run);

}  // namespace strata::bench

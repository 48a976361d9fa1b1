// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/node_ranks.h"
#include "engine/comm/network_probe.h"
#include "engine/config/limits.h"
#include "engine/config/machine.h"
#include "engine/config/options.h"
#include "engine/model/spec.h"
#include "engine/plan/planner.h"
#include "engine/plan/rates.h"

namespace strata::train {

// What a plan depends on besides the options.
struct RunFacts {
  config::Machine machine;
  config::Limits limits;
  int64_t data_bytes = 0;                   // tokens held in memory
  int64_t nvme_free_bytes = 0;              // of all directories together; 0 without --nvme
  int64_t nvme_bytes_max = plan::kNoLimit;  // on several machines: the least that one of them has
  int64_t host_budget = 0;                  // and the least for a run; 0: host_budget_of() here
  bool host_is_share = false;               // that is kShareOfUsable of what is usable there
  int64_t device_free_bytes = 0;            // of each GPU that a rank uses; 0: not known
  bool has_peers = false;                   // the devices of all ranks can send each other memory
  bool device_is_share = false;  // Options::device_memory is kShareOfDevice of a profile's
  bool inference = false;        // for eval and generate; everything in the spec is frozen
  // Of this model on the device of the run, as measured there; 0: the machine's figures are used.
  double compute_flops_per_s = 0;
  comm::NetworkFigures network;  // as the machines of the run measured it; zeros: they did not
  std::optional<model::BatchShape> shape;   // instead of the options'; with a cache, for generate
  bool elsewhere = false;                   // for the machine of a profile instead of this one
  int64_t ranks_on_node = 0;                // ranks that share memory and drives; 0: all
  int64_t steps = 0;                        // of the whole run; 0: not known
  int64_t done_steps = 0;                   // of these, before this start
  std::optional<int> only_rank;             // plan_run() makes only the plan of this rank
  bool rough = false;                       // plan_run() makes plan::rough_plan()s
  bool processes = false;                   // each rank is a process
  const std::atomic<bool>* stop = nullptr;  // set by a signal: plan_run() throws kInterrupted
};

// The drives of one node: those that the profile counts, or else those of --nvme.
struct Drives {
  int64_t count = 0;
  double rated_write_bytes = 0;  // over their life, all of them
  bool is_assumed = false;       // the rating is not in the machine's profile
};

Drives drives_of(const config::Options& options, const config::Machine& machine);

// What the plans of all ranks come to.
struct PlanTotals {
  int64_t read_bytes = 0;  // in a step: from NVMe and the model's files
  int64_t write_bytes = 0;
  int64_t file_bytes = 0;  // of read_bytes: frozen weights from the model's files
  SentBytes sent;          // in a step, to each other
  using ArenaBytes = std::array<int64_t, plan::kArenaCount>;
  ArenaBytes arena_bytes = {};
  std::vector<ArenaBytes> of_stages;  // of the first rank of each
};

// All ranks' plans of a run. Pure: nothing is allocated, opened or measured.
struct RunPlan {
  std::unique_ptr<model::ModelSpec> spec;  // groups, frozen parameters and offsets assigned
  // What each stage and tensor rank has of it, by stage, then tensor rank; empty for one.
  std::vector<model::ModelSpec> slices;
  plan::PlanInput input;          // of rank 0
  std::vector<plan::Plan> ranks;  // of all, or of RunFacts::only_rank
  // Of plan_run(). With RunFacts::only_rank, all ranks of a stage count as its first, but for what
  // they send.
  PlanTotals totals;
  std::string placement_name;
  plan::Rates rates;
  double predicted_step_s = 0;
  double slowest_stage_s = 0;   // of a step, without what it waits for others
  double model_flops = 0;       // of a rank's step, the mean, without what is computed again
  double best_flops_per_s = 0;  // of a rank's large products, as measured; 0: not known
  int candidates = 0;
  int64_t host_budget = 0;       // of the whole process
  bool host_is_share = false;    // it is kShareOfUsable of the available memory
  bool device_is_share = false;  // the device's budget is kShareOfDevice of its memory
  int64_t outside_bytes = 0;     // of host_budget, outside of arenas: program, libraries, tokens
  int64_t threads = 1;           // of each rank
  int64_t ranks_on_node = 1;
  bool processes = false;        // each rank is a process
  int64_t steps = 0;             // of the whole run; 0: not known
  int64_t done_steps = 0;        // of these, before this start
  int64_t checkpoint_every = 0;  // steps; 0: kCheckpointEveryS
  int64_t keep_checkpoints = 0;
  Drives drives;
  std::vector<double> nvme_weights;  // stripes of each scratch directory; empty: even

  // Model FLOPs utilization: how much of the large products' rate a step of this time reaches. 0:
  // not known.
  double mfu(double step_s) const {
    return best_flops_per_s > 0 && step_s > 0 ? model_flops / step_s / best_flops_per_s : 0;
  }

  // What a rank has of the model, which its plan is of.
  const model::ModelSpec& spec_of(int rank) const {
    if (slices.empty()) return *spec;
    plan::Mesh mesh = input.mesh;
    mesh.rank = rank;
    return slices[static_cast<size_t>(mesh.stage() * mesh.tensor + mesh.tensor_rank())];
  }
};

// The default of --checkpoint-every: the most that a crash can lose.
inline constexpr double kCheckpointEveryS = 30 * 60;

// The predicted number of steps from one checkpoint to the next; a step that takes longer than the
// time between two has one.
double steps_per_checkpoint(const RunPlan& run);

// The plan of a rank; `run` must have it.
const plan::Plan& plan_of(const RunPlan& run, int rank);

// Bytes outside of arenas: program, libraries, plan and checksum tables.
int64_t outside_bytes(const config::Options& options, const RunFacts& facts, int64_t nvme_bytes);

// The budget in host memory of a node: --host-memory, or what the machine may give.
int64_t host_budget_of(const config::Options& options, const RunFacts& facts);

// The budget of a rank in its device's memory.
int64_t device_budget_of(const config::Options& options, const RunFacts& facts);

// What data and tokenizer may use before arenas are allocated.
struct ReadingLimits {
  int64_t room_bytes = 0;  // their part of --host-memory; 0: no limit
  int64_t threads = 1;     // of --threads, or of the cores
};
ReadingLimits limits_for_reading(const config::Options& options, const RunFacts& facts);

// The share of usable memory for a run without a given budget, which leaves room for other
// programs.
inline constexpr double kShareOfUsable = 0.85;

// The share of a device's memory that arenas may take: the context of the device, its libraries and
// its allocator need the rest.
inline constexpr double kShareOfDevice = 0.9;

// The share of the drives' free space for scratch.
inline constexpr double kShareOfFreeSpace = 0.95;

// Throws Error (kConfig) for a number format or mode that this build does not have.
void require_built(const config::Options& options);

// Applies --freeze, [[group]] and --decay-all to a model's parameters, and assigns offsets. Throws
// Error{kConfig} for a pattern that is not a regular expression, or that matches no parameter left
// by earlier groups.
void apply_groups(model::ModelSpec& spec, const config::Options& options);

model::BatchShape shape_of(const config::Options& options);

// Throws as plan_run does when the run cannot fit. It uses no rates of the machine, so it can be
// called before these are measured.
void require_fit(model::ModelSpec spec, const config::Options& options, const RunFacts& facts);

// Throws Error: kConfig for what this build cannot do, kDoesNotFit with the smallest change that
// makes the run fit. With RunFacts::rough, which goes with only_rank 0, the plan is about that, in
// a part of the time.
RunPlan plan_run(model::ModelSpec spec, const config::Options& options, const RunFacts& facts);

// Sets facts.nvme_free_bytes for the directories of --nvme, with the machine's shares of stripes or
// equal ones, up to facts.nvme_bytes_max.
void set_room(const config::Options& options, RunFacts& facts);

}  // namespace strata::train

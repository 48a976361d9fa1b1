// SPDX-License-Identifier: Apache-2.0
// What a run takes of --host-memory outside of arenas.
#include <algorithm>

#include "engine/base/units.h"
#include "engine/comm/nested_exchange.h"
#include "engine/comm/node_memory.h"
#include "engine/model_files/transfer_buffer.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {
namespace {

// Measured: program, libraries and their heaps when idle, and the touched stack of each lane and
// worker.
constexpr int64_t kProgramBytes = 40 * kMiB;
constexpr int64_t kMpiBytes = 12 * kMiB;      // of a process: its libraries, and its buffers
constexpr int64_t kReadingBytes = 20 * kMiB;  // the program while it reads data, before a run
constexpr int64_t kRankBytes = 4 * kMiB;
constexpr int64_t kThreadBytes = kMiB / 2;
constexpr int64_t kOpBytes = 1000;  // of a plan: the op, its accesses and waits, in all programs
constexpr int64_t kChecksumBlock = 64 * kKiB;

}  // namespace

int64_t ops_of(const plan::PlanInput& input) {
  const int64_t of_pass = (input.mesh.tensor > 1 ? 14 : 5) + (input.shape.swaps_heads ? 5 : 0) +
                          (input.windows.order == plan::PipelineOrder::kDelayedProducts ? 1 : 0);
  const auto segments = static_cast<int64_t>(input.spec->segments.size());
  const auto chunks = std::ssize(shard::make_layout(*input.spec, input.mesh.shards()).chunks);
  const int64_t of_windows = 10 * (input.windows.count - 1);
  return segments * (of_pass * input.micro_batches + 12 + of_windows) + 10 * chunks;
}

namespace {

// The buffer for loading or exporting weights, and one more for frozen weights that steps read from
// the files while others are exported; several ranks use the page cache instead.
int64_t transfer_bytes(const plan::PlanInput& input) {
  if (input.mesh.world > 1) return 0;
  bool has_frozen = false;
  bool has_trained = false;
  for (const model::Segment& segment : input.spec->segments) {
    has_frozen = has_frozen || segment.frozen_numel > 0;
    has_trained = has_trained || segment.trainable_numel > 0;
  }
  const bool both = input.frozen_in_source && has_frozen && has_trained;
  return (both ? 2 : 1) * model::transfer_buffer_bytes(*input.spec);
}

// What a rank stages of others' gradients, sums and activations, by process groups: at most
// comm::kStagedBytes for each rank and machine.
int64_t staging_bytes(const plan::PlanInput& input, const config::Options& options,
                      const RunFacts& facts) {
  if (!facts.processes || options.collectives == config::Collectives::kMpi) return 0;
  const plan::Mesh& mesh = input.mesh;
  int64_t chunk = 0;
  for (const shard::Chunk& one : shard::make_layout(*input.spec, mesh.shards()).chunks) {
    chunk = std::max(chunk, one.numel);
  }
  const int64_t activations =
      input.shape.rows * input.shape.length * input.spec->architecture.hidden;
  const auto of_group = [&](plan::GroupName name, int64_t numel) -> int64_t {
    const plan::Mesh::Members members = mesh.members_of(name);
    if (members.size == 1) return 0;
    const int64_t near = mesh.together(members), machines = members.size / near;
    const int64_t depth = machines > 1 ? comm::kPiecesUnderWay : 1;
    const int64_t part = ceil_div(numel, members.size) * static_cast<int64_t>(sizeof(float));
    const int64_t rooms = members.size + (near > 1 && machines > 1 ? machines : 0);
    return rooms * std::min(depth * part, comm::kStagedBytes);
  };
  return of_group(plan::GroupName::kShard, chunk) +
         of_group(plan::GroupName::kReplicate, chunk / mesh.gradient_shards()) +
         of_group(plan::GroupName::kTensor, activations) +
         of_group(plan::GroupName::kContext, activations);
}

// Of a rank in all its groups, at most: each writes to it by a ring.
int64_t peers_on_node(const config::Options& options, int64_t ranks_on_node) {
  int64_t peers = 0;
  for (const int64_t size : {options.ranks /* the trainer's */, options.shards(), options.copies(),
                             options.tensor_ranks, options.pipeline_ranks, options.context_ranks}) {
    peers += std::min(size, ranks_on_node) - 1;
  }
  return peers;
}

}  // namespace

int64_t outside_bytes(const config::Options& options, const RunFacts& facts, int64_t nvme_bytes) {
  const int64_t threads = options.threads > 0 ? options.threads : facts.limits.cores;
  const int64_t lanes = plan::kLaneCount - (options.pipeline_ranks > 1 ? 0 : 1);  // comm_stage
  const int64_t per_rank = kRankBytes + (threads + lanes) * kThreadBytes;
  constexpr double kFarTooMuch = 1e15;
  const double tokens = static_cast<double>(options.accumulate) *
                        static_cast<double>(options.micro_batch) *
                        static_cast<double>(options.sequence_length);
  const auto batches = static_cast<int64_t>(std::min(6 * sizeof(int32_t) * tokens, kFarTooMuch));
  const int64_t ranks = ranks_on_node(options, facts);
  const bool by_mpi = facts.processes && options.collectives == config::Collectives::kMpi;
  const int64_t rings = facts.processes && !by_mpi ? ranks * peers_on_node(options, ranks) : 0;
  return (facts.processes ? ranks : 1) *
             (kProgramBytes + (by_mpi ? kMpiBytes : 0) + facts.data_bytes) +
         ranks * (per_rank + batches) + rings * comm::NodeRing::kBytes +
         nvme_bytes / kChecksumBlock * 8;
}

int64_t all_outside_bytes(const plan::PlanInput& input, const config::Options& options,
                          const RunFacts& facts) {
  const int64_t nvme_bytes = input.nvme_budget > 0 ? 18 * input.spec->parameter_count() : 0;
  return outside_bytes(options, facts, nvme_bytes) +
         (ops_of(input) * kOpBytes + staging_bytes(input, options, facts)) *
             ranks_on_node(options, facts) +
         transfer_bytes(input);
}

int64_t host_budget_for_arenas(const plan::PlanInput& input, const config::Options& options,
                               const RunFacts& facts) {
  const int64_t left = host_budget_of(options, facts) - all_outside_bytes(input, options, facts);
  return std::max<int64_t>(0, left) / ranks_on_node(options, facts);
}

ReadingLimits limits_for_reading(const config::Options& options, const RunFacts& facts) {
  const int64_t processes = facts.processes ? ranks_on_node(options, facts) : 1;
  const int64_t threads = options.threads > 0 ? options.threads : facts.limits.cores;
  const int64_t room_bytes = host_budget_of(options, facts) / processes - kReadingBytes;
  return {.room_bytes = std::max<int64_t>(1, room_bytes),
          .threads = std::max<int64_t>(1, threads / processes)};
}

}  // namespace strata::train

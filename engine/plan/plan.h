// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/payload.h"
#include "engine/model/footprint.h"
#include "engine/model/spec.h"
#include "engine/plan/op.h"
#include "engine/plan/update_table.h"
#include "engine/shard/layout.h"

// A plan: the programs of a run over one arena layout and one boundary state. Pure data.
namespace strata::plan {

enum class ProgramName : uint8_t { kLoad, kStep, kDrain, kEval, kGenerate, kCheckpoint };
inline constexpr int kProgramCount = 6;
const char* name_of(ProgramName name);

// The ops of one activity, in an order whose serial execution is correct. A lane issues its own ops
// in this order.
struct Program {
  ProgramName name = ProgramName::kStep;
  std::vector<Op> ops;
  std::vector<Access> accesses;
  std::vector<Wait> waits;
  std::array<std::vector<uint32_t>, kLaneCount> lanes;  // op indices by lane, ascending

  // The generation that every trainable plane has at the end; the next program calls it kOld.
  Generation final_generation = Generation::kOld;
  bool accepts_pending = false;  // may start with an update pending
  bool leaves_pending = false;   // ends with one pending (when the decision says so)

  // True where trainable planes change, so that the other side of what has two is live at the end.
  bool flips(bool pending) const {
    return final_generation == Generation::kNew ||
           (final_generation == Generation::kUpdated && pending);
  }

  std::span<const Access> accesses_of(const Op& op) const {
    return {accesses.data() + op.access_begin, accesses.data() + op.access_end};
  }
  std::span<const Wait> waits_of(const Op& op) const {
    return {waits.data() + op.wait_begin, waits.data() + op.wait_end};
  }
};

// What a range holds between programs: of an extent with two sides, the live one. Planes and the
// decision have generation kOld. Gradients are there only while an update is pending.
struct Holding {
  Arena arena = Arena::kHost;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t first = 0;
  Value value;
  bool only_if_pending = false;
};

// The extents on NVMe that have two sides: bytes [begin, begin + bytes), and as many behind them.
// Accesses and holdings name the first place, whichever is live.
struct TwoSides {
  int64_t begin = 0;
  int64_t bytes = 0;  // 0: every extent has one side
  bool contain(int64_t offset) const { return offset >= begin && offset - begin < bytes; }
};

// One line of the ledger: planned bytes of an arena by purpose. Lines of one arena do not overlap.
struct LedgerLine {
  Arena arena = Arena::kHost;
  std::string purpose;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct ArenaLayout {
  std::array<int64_t, kArenaCount> bytes = {};   // used
  std::array<int64_t, kArenaCount> budget = {};  // allowed
  std::vector<LedgerLine> lines;
  int64_t kept_in_gradients = 0;  // kept activations that lie in the room of held gradients
};

// Ranks that train one model: `pipeline` stages of it, `replicate` copies of a stage's state, each
// of which shards() groups of ranks share, and `tensor` ranks in each group, which slice every
// block. Ranks of a group follow each other, and so do groups of a copy and copies of a stage.
// Groups have different data; the ranks of one have the same, and so has each stage. `context`
// groups that follow each other share micro-batches: each has a part of every sequence. `rank` is
// this plan's own.
struct Mesh {
  int world = 1;
  int rank = 0;
  int zero_stage = 3;
  int replicate = 1;
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  // Ranks of a machine, which follow each other; 0: all are on one. Sums nest by machine.
  int node_ranks = 0;
  Payload reduce_dtype = Payload::kF32;  // of gradients
  int stage_ranks() const { return world / pipeline; }
  int stage() const { return rank / stage_ranks(); }
  int shards() const { return stage_ranks() / (replicate * tensor); }
  int data_ranks() const { return stage_ranks() / tensor; }
  int data_rank() const { return rank % stage_ranks() / tensor; }
  int shard_rank() const { return data_rank() % shards(); }
  int tensor_rank() const { return rank % tensor; }
  int context_rank() const { return data_rank() % context; }
  // Which micro-batches a rank has, and how many ranks have others.
  int batch_rank() const { return data_rank() / context; }
  int batch_ranks() const { return data_ranks() / context; }
  kernels::ContextPart context_part() const { return {context_rank(), context}; }
  int state_shards() const { return zero_stage >= 1 ? shards() : 1; }
  int gradient_shards() const { return zero_stage >= 2 ? shards() : 1; }
  int weight_shards() const { return zero_stage >= 3 ? shards() : 1; }
  int size_of(GroupName group) const {
    if (group == GroupName::kTensor) return tensor;
    if (group == GroupName::kPipeline) return pipeline;
    if (group == GroupName::kContext) return context;
    return group == GroupName::kShard ? shards() : replicate;
  }
  // The ranks of this rank's group: `first`, and so many others, each `stride` further.
  struct Members {
    int first = 0;
    int stride = 1;
    int size = 1;
    int index_of(int member) const { return (member - first) / stride; }
    int at(int index) const { return first + index * stride; }
  };
  Members members_of(GroupName group) const {
    const int copy_ranks = shards() * tensor;
    switch (group) {
      case GroupName::kShard:
        return {rank / copy_ranks * copy_ranks + tensor_rank(), tensor, shards()};
      case GroupName::kReplicate:
        return {stage() * stage_ranks() + rank % copy_ranks, copy_ranks, replicate};
      case GroupName::kPipeline:
        return {rank % stage_ranks(), stage_ranks(), pipeline};
      case GroupName::kContext:
        return {rank - context_rank() * tensor, tensor, context};
      case GroupName::kTensor:
        break;
    }
    return {rank - tensor_rank(), 1, tensor};
  }
  // Whether another rank is on this rank's machine.
  bool is_near(int other) const {
    return node_ranks == 0 || other / node_ranks == rank / node_ranks;
  }
  // How many members are on one machine: they follow each other, as many on each; or else 1.
  int together(const Members& members) const;
  // Groups that a gradient is summed over, and a norm partial.
  int reductions() const { return (shards() > 1 ? 1 : 0) + (replicate > 1 ? 1 : 0); }
  int norm_reductions() const { return (gradient_shards() > 1 ? 1 : 0) + (tensor > 1 ? 1 : 0); }
  // True where this rank's state goes into checkpoints: every element of a slice once.
  bool saves() const { return data_rank() < state_shards(); }
};

// Where the buffer of an op between ranks lies that exchanges values of a device.
inline Arena bounce_arena(const kernels::DeviceDescription& device) {
  return device.peers ? Arena::kDevice : Arena::kHost;
}

// The order in which a stage of a pipeline goes forward and back through the windows of a step:
// forward through all of them, then back; or back through a window as soon as it can, which keeps
// the activations of fewer; or so, but without the products that give gradients of weights, which
// fill the time in which a stage would wait (zero bubble).
enum class PipelineOrder : uint8_t { kAllForward, kOneForwardOneBackward, kDelayedProducts };

const char* name_of(PipelineOrder order);

// How a step's micro-batches pass a stage: so many at a time, of which each unit does all before
// the next. A model that is not divided has one window. `count` divides the micro-batches.
struct Windows {
  int count = 1;
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  bool operator==(const Windows&) const = default;
};

struct Plan {
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape;
  int micro_batches = 1;  // of a step
  Windows windows;
  int eval_micro_batches = 1;  // of one run of the eval program
  OptimizerMode mode = OptimizerMode::kDeferred;
  kernels::DeviceDescription device;  // that computes
  Mesh mesh;
  int io_depth = 8;  // transfers in flight on each I/O lane
  shard::Layout layout;
  ArenaLayout arenas;
  TwoSides sides;
  std::vector<Holding> boundary;
  std::array<Program, kProgramCount> programs;

  const Program& program(ProgramName name) const { return programs[static_cast<size_t>(name)]; }
  const UpdateRule& update() const { return update_rule(mode); }
};

}  // namespace strata::plan

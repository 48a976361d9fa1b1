// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/recipe.h"

// The vocabulary of a plan. Everything here is plain data: no pointer, no I/O, no hardware.
namespace strata::plan {

enum class Lane : uint8_t {
  kCompute,
  kOptimizer,
  kUpload,
  kDownload,
  kReadWeights,
  kReadState,
  kWrite,
  kComm,       // over shards and copies of the state
  kCommInner,  // within a layer: over tensor ranks, and over context ranks
  kUpdate,     // of what lives on a discrete device
  kCommStage,  // between the stages of a pipeline
};
inline constexpr int kLaneCount = 11;

// On the host a serial lane finishes an op before it issues the next; the others, and queues of a
// device, keep several in flight and publish in plan order.
constexpr bool is_io_lane(Lane lane) {
  return lane == Lane::kReadWeights || lane == Lane::kReadState || lane == Lane::kWrite;
}
constexpr bool is_arithmetic_lane(Lane lane) {
  return lane == Lane::kCompute || lane == Lane::kOptimizer || lane == Lane::kUpdate;
}
constexpr bool is_serial(Lane lane) {
  return !is_io_lane(lane);
}

// All ranks that take part in an op of these lanes give it the same number. The numbers of a lane
// ascend, and no op waits for one with a larger number, so ranks that issue each lane in order
// cannot wait for each other forever.
constexpr bool is_comm_lane(Lane lane) {
  return lane == Lane::kComm || lane == Lane::kCommInner || lane == Lane::kCommStage;
}

// Of the memory through which ranks exchange what lies on a device, for each of them: two blocks of
// Payload::kMxInt8, for what is sent and for what comes.
inline constexpr int64_t kLeastBounceBytes = 512;

// These lanes are queues of a device that has queues (kernels::has_queues). All others belong to
// the host, and without such a device these do too.
constexpr bool is_device_lane(Lane lane) {
  return lane == Lane::kCompute || lane == Lane::kUpload || lane == Lane::kDownload ||
         lane == Lane::kUpdate;
}

// Ranks that differ in one axis of the mesh.
enum class GroupName : uint8_t {
  kShard,      // share one copy of the state
  kReplicate,  // hold the same part of different copies
  kTensor,     // compute the same micro-batches, each with its slice of every block
  kPipeline,   // compute the same micro-batches, each with its stage of the model
  kContext,    // compute the same micro-batches, each with its part of every sequence
};
inline constexpr int kGroupCount = 5;

// A group is used on one lane, so that all its ranks call it in the same order.
constexpr Lane comm_lane_of(GroupName group) {
  if (group == GroupName::kPipeline) return Lane::kCommStage;
  const bool inner = group == GroupName::kTensor || group == GroupName::kContext;
  return inner ? Lane::kCommInner : Lane::kComm;
}

enum class OpKind : uint8_t {
  kFetch,      // NVMe -> host
  kConvert,    // a source of state or frozen weights -> host, cast and laid out
  kSave,       // host -> a checkpoint or export
  kSpill,      // host -> NVMe
  kUpload,     // host -> device
  kDownload,   // device -> host
  kGather,     // own parts of a segment -> the whole segment, on every rank; own rows, keys or
               // scores -> all
  kReduce,     // gradients, norm partials, branches or logits of a group -> their sum, of own parts
               // or of all; over kPipeline: norm partials of all stages -> one sum
  kAllToAll,   // values for each rank of a group -> values of each
  kForward,    // one segment, one micro-batch
  kRecompute,  // rebuilds the interior (and the next segment's input) from a checkpoint
  kBackward,   // one segment, one micro-batch; perhaps without the products of kWeightGradient
  kWeightGradient,  // these: gradients of the segment's parameters from what a Backward left
  kLoss,            // the head: forward, loss and backward of one micro-batch
  kEvaluate,        // the head: forward and loss alone
  kLogits,          // the head: logits of one position of each row
  kNormPartial,     // squares of a segment's gradients, by chunk
  kDecide,    // in a step: norm, finite or not, what the update uses; in a drain: it is applied
  kOptimize,  // one chunk's update
  kInput,     // what the caller gives -> host: tokens, targets, positions, updates; tables
  kOutput,    // host -> what the caller gets: loss sums, logits
  kSend,      // to a neighbouring stage: a segment's output, or the gradient of one
  kRecv,      // from there
};
inline constexpr int kOpKindCount = 23;

// On the CPU device and host are one tier: then every slot is in kHost. kControl holds norm
// partials and the decision: a few bytes a chunk, always in host memory.
enum class Arena : uint8_t { kDevice, kHost, kNvme, kControl };
inline constexpr int kArenaCount = 4;

enum class ValueKind : uint8_t {
  kPlane,               // segment, plane, generation
  kGradient,            // segment; `index` = contributions summed so far, where model::sums_whole
                        // with those of other tensor ranks as the last; `reduced`
  kActivation,          // the output of `segment` for micro-batch `index`; of tensor ranks own rows
  kActivationGradient,  // the gradient of that output; `reduced`
  kInterior,            // of `segment`, micro-batch `index`; `reduced`
  kBranch,              // [ranks, rows, C] f32: what `segment` adds to its input, or rows of an
                        // embedding; `reduced` = 1: sums of own rows
  kBranchGradient,      // the same of what its first products read
  kScratch,             // dead when its op ends; `index` is unused
  kCache,               // keys and values of attention `segment`, which passes extend in place
  kTokens,              // [B, T] of micro-batch `index`, and where they are (model::token_bytes)
  kTargets,             // the same
  kPositions,           // [B]: of each row or text, the position whose logits are wanted
  kRope,                // cosines and sines of every position; `index` = table of the model
  kLossSum,             // of micro-batch `index`
  kLogits,              // [B, V]; `reduced` = 1: the sum of those of all tensor ranks
  kNormPartial,         // of `segment`; `reduced`
  kNormSum,             // of the norm partials of all stages, in the order of the model
  kDecision,            // the last one: kOld before this program, kNew where the program makes one
  kKeys,                // [ranks, N, 2KD] f32 of attention `segment`; `reduced` = 1: of all ranks
  kKeyGradient,         // of these keys and values; `reduced`
  kScores,              // [ranks, N, 3] f32 of the head's logits; `reduced` = 1: of all ranks
  kProjected,           // [N, (H+2K)D] of attention `segment`: q, k and v before their norms
  kProjectedGradient,   // the same of the gradients of normed q and k, and of v
  kNormSums,      // [2, N] f32 of the norms of q and k, or of their backward; `reduced` = 1: of
                  // all ranks
  kRows,          // [ranks, rows, C]: the activation of all tensor ranks
  kRowGradient,   // the same of the gradient of the output of `segment`, or of its branch where
                  // model::Parts::norms_branch; `reduced` = 1: of all ranks
  kOperands,      // what a Backward of `segment`, micro-batch `index`, left for its WeightGradient;
                  // `reduced`
  kNormGradient,  // of the norms of `segment`, whose products are delayed; `index` = contributions
                  // summed so far
  kHeads,         // of attention `segment` whose ranks swap heads: q, k and v of own tokens, those
                  // of the heads of each rank (model::swapped_head_bytes); `reduced` = 1: of own
                  // heads, those of the tokens of each rank
  kHeadsGradient,  // of the latter, and `reduced` = 1: of the former
  kAttended,       // what own heads attend to, for the tokens of each rank; `reduced` = 1: for own
                   // tokens, of the heads of each rank
  kAttendedGradient,  // of the latter, and `reduced` = 1: of the former
};

// What context ranks swap between the parts of attention.
constexpr bool is_swapped(ValueKind kind) {
  return kind >= ValueKind::kHeads && kind <= ValueKind::kAttendedGradient;
}

// What tensor ranks sum between two parts of a segment: each gets the sums of own rows.
constexpr bool is_branch(ValueKind kind) {
  return kind == ValueKind::kBranch || kind == ValueKind::kBranchGradient;
}

// Generations are relative to the state at the start of a program. kUpdated ("+u"): the pending
// update was applied if there was one. kNew ("+1"): an update of this program's own gradients was
// applied.
enum class Generation : uint8_t { kOld, kUpdated, kNew };

struct Value {
  ValueKind kind = ValueKind::kScratch;
  Plane plane = Plane::kHi;
  Generation generation = Generation::kOld;
  // Groups that a gradient, norm partial or branch was summed over; of an activation gradient,
  // readers of the output whose contribution is still missing; of an interior or of operands, parts
  // of the segment that will still add to it.
  uint8_t reduced = 0;
  int32_t segment = -1;
  int32_t index = 0;
  bool operator==(const Value&) const = default;
};

enum class Mode : uint8_t { kRead, kWrite };

// Of an extent on NVMe that has two copies. `live` is what the program began with, unchanged. An
// update writes on `other`, which is live once the program is over; a value of generation +u is
// there too where the update was pending, else on `live`.
enum class Side : uint8_t { kLive, kOther };

// Bytes [offset, offset + bytes) of an arena hold, from byte `first` of it on, `value`. So adjacent
// writes of chunks satisfy one read of a segment: at every address the value and (offset - first)
// agree. An op that changes bytes in place has a read and a write on the same range. Reads of an op
// happen before its writes.
struct Access {
  Mode mode = Mode::kRead;
  Arena arena = Arena::kHost;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t first = 0;
  Value value;
  Side side = Side::kLive;  // kOther only within TwoSides
};

// An update that is not pending leaves what it would change on the live side.
constexpr Side side_of(const Access& access, bool pending) {
  const bool updated = pending || access.value.generation != Generation::kUpdated;
  return updated ? access.side : Side::kLive;
}

// count > 0: the first `count` ops of `lane` in this program have completed.
// count <= 0: all but the last -count ops of `lane` in the preceding `step` have completed; a
// preceding program of any other name ended drained, so then it holds.
struct Wait {
  Lane lane = Lane::kCompute;
  int32_t count = 0;
};

// kPending: the op runs only when an update is pending at the start of the program; otherwise it is
// skipped, and still counts on its lane. Such an op reads the decision of generation kOld. So does
// every Optimize, whose scalars depend on how many updates were applied, and every op that has a
// value of generation +u on the other side.
enum class Predicate : uint8_t { kAlways, kPending };

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  Predicate predicate = Predicate::kAlways;
  bool recomputes = false;  // a Backward that first rebuilds its own interior from its input
  bool keeps = false;       // a Forward that leaves its interior
  int32_t unit = -1;
  int32_t segment = -1;
  int32_t chunk = -1;  // first chunk; -1 where the op is not about chunks
  int32_t chunk_count = 0;
  int32_t micro_batch = -1;
  // Of a compute op of external segments, its place in ModelSpec::uses. Of others, see
  // model::Parts: Forward and Recompute have them in ascending order, Backward in descending order.
  // What ranks exchange between two parts is a value.
  int32_t part = 0;
  GroupName group = GroupName::kShard;        // of an op on a lane of is_comm_lane()
  int64_t number = -1;                        // on a lane of is_comm_lane()
  uint32_t access_begin = 0, access_end = 0;  // into Program::accesses
  uint32_t wait_begin = 0, wait_end = 0;      // into Program::waits
  int64_t bytes = 0;  // moved by transfers and collectives; DRAM traffic of Optimize and norms
  double flops = 0;   // of compute ops
};

}  // namespace strata::plan

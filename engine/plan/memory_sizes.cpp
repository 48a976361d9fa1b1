// SPDX-License-Identifier: Apache-2.0
// Sizes and pieces of a model and a placement, from which memory_map.cpp makes the layout.
#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/memory_map.h"

namespace strata::plan {

// Called for every segment of every layout that is tried, so it searches only for heads that share
// an embedding.
bool is_shared(const PlanInput& input, int segment) {
  if (input.spec->segments[segment].kind != model::SegmentKind::kEmbedding) return false;
  return std::any_of(input.spec->segments.begin(), input.spec->segments.end(),
                     [&](const model::Segment& other) { return other.shares == segment; });
}

std::vector<Piece> pieces_of(const shard::Layout& layout, int segment, int shards, int rank,
                             bool with_frozen) {
  std::vector<Piece> pieces;
  for (int c = layout.first_chunk[segment]; c < layout.first_chunk[segment + 1]; ++c) {
    const shard::Chunk& chunk = layout.chunks[c];
    if (chunk.frozen && !with_frozen) continue;
    const int64_t part = shard::share_of(chunk.numel, shards);
    const Piece piece = {chunk.offset + (shards > 1 ? rank * part : 0), part,
                         shard::share_of(chunk.offset, shards), chunk.frozen};
    if (shards == 1 && !pieces.empty() && pieces.back().frozen == piece.frozen) {
      pieces.back().count += piece.count;
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

namespace {

Piece piece_of(const Plan& plan, int chunk, int shards) {
  const shard::Chunk& at = plan.layout.chunks[chunk];
  const int64_t part = shard::share_of(at.numel, shards);
  return {at.offset + (shards > 1 ? plan.mesh.shard_rank() * part : 0), part,
          shard::share_of(at.offset, shards), at.frozen};
}

}  // namespace

Piece state_piece(const Plan& plan, int chunk) {
  return piece_of(plan, chunk, plan.mesh.state_shards());
}

Piece weights_piece(const Plan& plan, int chunk) {
  return piece_of(plan, chunk, plan.mesh.weight_shards());
}

int64_t boundary_tensor_bytes(const PlanInput& input) {
  return model::boundary_bytes(*input.spec, input.shape, input.recipe);
}

int64_t most_row_gradient_bytes(const PlanInput& input) {
  int64_t most = 0;
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    most = std::max(most, model::row_gradient_bytes(*input.spec, s, input.shape, input.recipe,
                                                    input.device.interior));
  }
  return most;
}

int64_t state_bytes(const Plan& plan, int chunk) {
  int64_t per_element = 0;
  for (Plane plane : kStatePlanes) per_element += width_of(plane, plan.recipe);
  return state_piece(plan, chunk).count * per_element;
}

int64_t plane_address(const Plan& plan, int chunk, const StateSlot& slot, Plane plane) {
  if (plane == Plane::kExpAvgSq && slot.exp_avg_sq >= 0) return slot.exp_avg_sq;
  const int64_t count = state_piece(plan, chunk).count;
  int64_t at = slot.base;
  for (Plane before : kStatePlanes) {
    if (before == plane) break;
    at += count * width_of(before, plan.recipe);
  }
  return at;
}

int64_t hi_full_bytes(const PlanInput& input, int segment) {
  return input.spec->segments[segment].numel() * width_of(Plane::kHi, input.recipe);
}

int64_t hi_part_bytes(const Plan& plan, const PlanInput& input, int segment) {
  return shard::share_of(hi_full_bytes(input, segment), plan.mesh.weight_shards());
}

int64_t gradient_full_bytes(const PlanInput& input, int segment) {
  return input.spec->segments[segment].trainable_numel * kGradientWidth;
}

int64_t gradient_part_bytes(const PlanInput& input, int segment) {
  return shard::share_of(gradient_full_bytes(input, segment), input.mesh.gradient_shards());
}

int64_t swapped_bytes(const PlanInput& input) {
  return std::max(
      model::swapped_head_bytes(input.spec->architecture, input.shape, input.device.interior),
      model::swapped_attended_bytes(input.spec->architecture, input.shape, input.device.interior));
}

namespace {

// The most bytes that an op of the lane has on the device, whether or not a plan has such an op.
int64_t most_exchanged_bytes(const PlanInput& input, Lane lane) {
  const Mesh& mesh = input.mesh;
  const auto over_segments = [&](const auto& bytes_of) {
    int64_t most = 0;
    for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
      most = std::max(most, bytes_of(s));
    }
    return most;
  };
  if (lane == Lane::kCommStage) return mesh.pipeline > 1 ? boundary_tensor_bytes(input) : 0;
  if (lane == Lane::kComm) {
    if (mesh.shards() * mesh.size_of(GroupName::kReplicate) == 1) return 0;
    return over_segments(
        [&](int s) { return std::max(hi_full_bytes(input, s), gradient_full_bytes(input, s)); });
  }
  int64_t most = 0;
  if (mesh.tensor > 1) {
    const int64_t logits = input.shape.logit_rows() * input.spec->architecture.vocabulary * 4;
    most = std::max(logits, mesh.tensor * model::own_score_bytes(input.shape));
    most = std::max(most, mesh.tensor * model::branch_bytes(*input.spec, input.shape));
    most = std::max(most, over_segments([&](int s) {
                      return input.spec->segments[s].whole_numel * kGradientWidth;
                    }));
  }
  if (mesh.size_of(GroupName::kContext) > 1) {
    const int64_t own = input.shape.swaps_heads ? 2 * swapped_bytes(input)
                                                : model::own_key_bytes(*input.spec, input.shape);
    most = std::max(most, input.shape.context.ranks * own);
  }
  return most;
}

}  // namespace

int64_t bounce_bytes(const PlanInput& input, Lane lane) {
  if (!input.device.discrete || !is_comm_lane(lane)) return 0;
  const int64_t most = round_up(most_exchanged_bytes(input, lane), kPageBytes);
  if (most == 0) return 0;
  const bool only_sends = input.device.peers && lane == Lane::kCommStage;  // a buffer is for sums
  const int64_t limit = only_sends ? 0 : input.device.peers ? kMostPeerBytes : kMostBounceBytes;
  return std::max(std::min(2 * most, limit), input.mesh.world * kLeastBounceBytes);
}

bool has_checkpoint(const PlanInput& input, int unit) {
  const std::vector<model::Segment>& segments = input.spec->segments;
  const model::Segment& first = segments[input.spec->units[unit].segments.front()];
  const bool block =
      first.kind == model::SegmentKind::kAttention || first.kind == model::SegmentKind::kMlp;
  return block && segments[first.inputs.front()].kind != model::SegmentKind::kReceived;
}

bool spills_checkpoint(const PlanInput& input, const Placement& placement, int unit) {
  const bool on_device = input.device.discrete && placement.activations_on_device;
  return has_checkpoint(input, unit) && !on_device && !placement.checkpoint_in_host[unit] &&
         !input.inference;
}

bool has_home_on_device(const PlanInput& input, const Placement& placement, int segment) {
  return input.device.discrete && placement.home_on_device[segment];
}

int64_t staging_bytes(const Plan& plan, int chunk) {
  const int64_t weights = weights_piece(plan, chunk).count * width_of(Plane::kHi, plan.recipe);
  const bool frozen = plan.layout.chunks[chunk].frozen;
  return round_up(weights + (frozen ? 0 : state_bytes(plan, chunk)), kPageBytes);
}

bool spills_gradient(const PlanInput& input, const Placement& placement, int segment) {
  return input.update().waits && !placement.grad_in_host[segment] &&
         !has_home_on_device(input, placement, segment) &&
         input.spec->segments[segment].trainable_numel > 0;
}

bool accumulates_in_place(const PlanInput& input, const Placement& placement, int segment) {
  const bool held = input.device.discrete ? has_home_on_device(input, placement, segment)
                                          : placement.grad_in_host[segment] != 0;
  return held && input.mesh.reductions() == 0 && input.update().waits;
}

bool is_external(const PlanInput& input, int segment) {
  return input.spec->segments[segment].kind == model::SegmentKind::kExternal;
}

const WindowsAtOnce& windows_at_once(const PlanInput& input, const StageSchedule& schedule,
                                     int unit) {
  const std::vector<model::Section>& sections = input.spec->stage.sections;
  size_t index = 0;
  while (index + 1 < sections.size() && unit >= sections[index].end_unit) ++index;
  return schedule.sections[index];
}

int kept_micro_batches(const PlanInput& input, const Ground& ground, int unit) {
  return windows_at_once(input, ground.step, unit).kept *
         (input.micro_batches / input.windows.count);
}

bool embeds_at_end(const PlanInput& input) {
  return input.mesh.pipeline == 1 && input.windows.count > 1 &&
         input.spec->segments.front().kind == model::SegmentKind::kEmbedding && is_shared(input, 0);
}

bool accumulates_apart(const PlanInput& input, const Placement& placement, int segment) {
  if (is_shared(input, segment)) return true;
  const int sums = is_external(input, segment)
                       ? input.micro_batches * input.spec->segments[segment].backward_uses
                       : input.windows.count;
  const bool stays = input.device.discrete && placement.sums_on_device;
  const bool may_leave = input.update().waits && !stays && input.mesh.reductions() == 0;
  return sums > 1 && !may_leave && input.spec->segments[segment].trainable_numel > 0;
}

}  // namespace strata::plan

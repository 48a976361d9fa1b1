// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/activation_map.h"

#include <algorithm>

namespace strata::plan {
namespace {

// A place for every micro-batch, where there are `windows` windows at a time.
template <class Take>
std::vector<int64_t> places_of_all(const PlanInput& input, int windows, Take take) {
  const auto count = static_cast<size_t>(input.micro_batches);
  const size_t at_once =
      count / static_cast<size_t>(input.windows.count) * static_cast<size_t>(windows);
  std::vector<int64_t> set;
  for (size_t m = 0; m < count; ++m) set.push_back(m < at_once ? take() : set[m - at_once]);
  return set;
}

constexpr const char* kNormPurpose = "sums of norms of tensor ranks";

bool sums_norms(const PlanInput& input) {
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    if (model::parts_of(*input.spec, input.shape, s).sums_norms) return true;
  }
  return false;
}

// What backwards leave for the products that they delay.
void lay_out_operands(const PlanInput& input, const Ground& ground, Packer& pack, MemoryMap& map) {
  const Arena compute = compute_arena(input);
  map.operands.resize(ground.footprints.size());
  map.norm_gradient.resize(ground.footprints.size(), -1);
  for (size_t s = 0; s < ground.footprints.size(); ++s) {
    const model::Segment& segment = input.spec->segments[s];
    if (!delays_products(input.windows, segment)) continue;
    const model::Footprint& print = ground.footprints[s];
    const int windows = windows_at_once(input, ground.step, segment.unit).operands;
    map.operands[s] = places_of_all(input, windows, [&] {
      return pack.take(compute, print.operand_bytes, "operands of delayed products");
    });
    if (print.norm_gradient_bytes == 0) continue;
    map.norm_gradient[s] =
        pack.take(compute, print.norm_gradient_bytes, "operands of delayed products");
  }
}

// What a unit keeps from forward to backward.
std::vector<int64_t> take_kept(const PlanInput& input, const Ground& ground, int unit,
                               int64_t bytes, const char* purpose, Packer& pack,
                               SharedSlots& slots) {
  return places_of_all(input, windows_at_once(input, ground.step, unit).kept, [&] {
    const int64_t room = slots.take(unit, round_up(bytes, kPageBytes));
    if (room < 0) return pack.take(compute_arena(input), bytes, purpose);
    pack.count_kept_in_gradients(round_up(bytes, kPageBytes));
    return room;
  });
}

}  // namespace

void lay_out_activations(const PlanInput& input, const Ground& ground, const Placement& placement,
                         Packer& pack, SharedSlots& slots, MemoryMap& map) {
  const model::ModelSpec& spec = *input.spec;
  const Arena compute = compute_arena(input);
  const int64_t bytes = boundary_tensor_bytes(input);
  const auto take_set = [&](Arena arena, const char* purpose, int windows) {
    return places_of_all(input, windows, [&] { return pack.take(arena, bytes, purpose); });
  };
  map.activation.resize(spec.segments.size());
  map.host_activation.resize(spec.segments.size());
  map.nvme_activation.resize(spec.segments.size());
  const bool away = input.device.discrete && !placement.activations_on_device;
  std::vector<std::vector<int64_t>> alternating, inner;
  for (size_t u = 0; u < spec.units.size(); ++u) {
    const model::Unit& unit = spec.units[u];
    const WindowsAtOnce& step = windows_at_once(input, ground.step, static_cast<int>(u));
    const int kept = step.kept;
    for (size_t i = 0; i < unit.segments.size(); ++i) {
      const model::Segment& reader = spec.segments[unit.segments[i]];
      if (reader.inputs.empty()) continue;
      for (size_t other = 1; other < reader.inputs.size(); ++other) {
        std::vector<int64_t>& end = map.activation[reader.inputs[other]];
        if (end.empty()) end = take_set(compute, "activations across streams", kept);
      }
      const int s = reader.inputs.front();
      if (spec.segments[s].kind == model::SegmentKind::kReceived) {
        const WindowsAtOnce& passes = windows_at_once(input, ground.passes, static_cast<int>(u));
        map.activation[s] = take_set(compute, "activation checkpoints, received",
                                     std::max(step.received, passes.received));
      } else if (reader.kind == model::SegmentKind::kSent) {
        map.activation[s] =
            take_set(compute, "activations to send", std::min(2, input.windows.count));
      } else if (i == 0 && away) {
        if (alternating.size() <= u % 2) alternating.resize(u % 2 + 1);
        std::vector<int64_t>& set = alternating[u % 2];
        if (set.empty()) set = take_set(compute, "activations", 1);
        map.activation[s] = set;
        if (reader.kind == model::SegmentKind::kHead) continue;
        if (spills_checkpoint(input, placement, static_cast<int>(u))) {
          map.nvme_activation[s] = take_set(Arena::kNvme, "activation checkpoints, spilled", kept);
        } else {
          map.host_activation[s] = take_set(Arena::kHost, "activation checkpoints", kept);
        }
      } else if (i == 0 && spills_checkpoint(input, placement, static_cast<int>(u))) {
        map.nvme_activation[s] = take_set(Arena::kNvme, "activation checkpoints, spilled", kept);
      } else if (i == 0) {
        map.activation[s] = take_set(compute, "activation checkpoints", kept);
      } else if (placement.keep[u]) {
        map.activation[s] =
            take_kept(input, ground, static_cast<int>(u), bytes, "activations, kept", pack, slots);
      } else {
        if (inner.size() < i) inner.resize(i);
        if (inner[i - 1].empty()) inner[i - 1] = take_set(compute, "activations", 1);
        map.activation[s] = inner[i - 1];
      }
    }
  }
  map.activation_gradient.resize(spec.segments.size());
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    const model::Segment& segment = spec.segments[s];
    if (segment.inputs.empty()) {
      const int windows = embeds_at_end(input)
                              ? input.windows.count
                              : windows_at_once(input, ground.step, segment.unit).gradients;
      map.activation_gradient[s] = take_set(compute, "activation gradients", windows);
    } else {
      map.activation_gradient[s] = map.activation_gradient[segment.inputs.front()];
    }
  }
}

void lay_out_interiors(const PlanInput& input, const Ground& ground, const Placement& placement,
                       Packer& pack, SharedSlots& slots, MemoryMap& map) {
  const model::ModelSpec& spec = *input.spec;
  const Arena compute = compute_arena(input);
  map.interior.resize(spec.segments.size());
  std::vector<int64_t> interior_bytes;  // by segment
  std::vector<int64_t> shared_bytes;    // by position in the unit
  for (int s = 0; s < static_cast<int>(spec.segments.size()); ++s) {
    const model::Footprint& print = ground.footprints[s];
    map.scratch_bytes = std::max({map.scratch_bytes, print.forward_workspace_bytes,
                                  print.recompute_workspace_bytes, print.backward_workspace_bytes});
    interior_bytes.push_back(print.interior_bytes);
    const int u = spec.segments[s].unit;
    if (print.interior_bytes == 0) continue;
    if (placement.keep[u]) {
      map.interior[s] =
          take_kept(input, ground, u, print.interior_bytes, "interiors, kept", pack, slots);
      continue;
    }
    const auto& segments = spec.units[u].segments;
    const size_t position =
        static_cast<size_t>(std::find(segments.begin(), segments.end(), s) - segments.begin());
    if (shared_bytes.size() <= position) shared_bytes.resize(position + 1);
    shared_bytes[position] = std::max(shared_bytes[position], print.interior_bytes);
  }
  std::vector<int64_t> shared;
  for (int64_t bytes : shared_bytes) shared.push_back(pack.take(compute, bytes, "interiors"));
  lay_out_operands(input, ground, pack, map);
  for (const model::Unit& unit : spec.units) {
    for (size_t i = 0; i < unit.segments.size(); ++i) {
      const int s = unit.segments[i];
      if (interior_bytes[s] == 0 || !map.interior[s].empty()) continue;
      map.interior[s].assign(input.micro_batches, shared[i]);
    }
  }
  if (const int ranks = spec.tensor.ranks; ranks > 1) {
    const auto take = [&](int64_t own, const char* purpose) {
      return pack.take(compute, ranks * own, purpose);
    };
    const int64_t rows = model::row_bytes(spec, input.shape, input.recipe);
    for (int64_t& room : map.rows) room = take(rows, "rows of tensor ranks");
    if (!input.inference) {
      map.row_gradient = take(most_row_gradient_bytes(input), "rows of tensor ranks");
    }
    map.branch = take(model::branch_bytes(spec, input.shape), "sums over tensor ranks");
    map.scores = take(model::own_score_bytes(input.shape), "scores of tensor ranks");
    if (sums_norms(input)) {
      map.projected = pack.take(
          compute, model::projected_bytes(spec, input.shape, input.device.interior), kNormPurpose);
      map.norm_sums = pack.take(compute, model::norm_sum_bytes(input.shape), kNormPurpose);
    }
  }
  const int context_ranks = static_cast<int>(input.shape.context.ranks);
  if (input.shape.swaps_heads) {
    const int64_t bytes = context_ranks * swapped_bytes(input);
    const char* const purpose = "heads of context ranks";
    map.sent = pack.take(compute, bytes, purpose);
    map.received = pack.take(compute, bytes, purpose);
  } else if (context_ranks > 1) {
    const int64_t bytes = context_ranks * model::own_key_bytes(spec, input.shape);
    const char* const purpose = "keys and values of context ranks";
    map.keys = pack.take(compute, bytes, purpose);
    map.key_gradient = input.inference ? -1 : pack.take(compute, bytes, purpose);
  }
  map.scratch = pack.take(compute, map.scratch_bytes, "workspace");
}

}  // namespace strata::plan

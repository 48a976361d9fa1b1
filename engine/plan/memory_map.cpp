// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/memory_map.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/activation_map.h"

namespace strata::plan {
namespace {

bool trainable(const PlanInput& input, int segment) {
  return input.spec->segments[segment].trainable_numel > 0;
}

// Of a segment's own part, what comes first: the elements that updates change.
int64_t trainable_part_bytes(const Plan& plan, const PlanInput& input, int segment) {
  return input.spec->segments[segment].trainable_numel * width_of(Plane::kHi, input.recipe) /
         plan.mesh.weight_shards();
}

// And what NVMe has.
int64_t nvme_part_bytes(const Plan& plan, const PlanInput& input, int segment) {
  return input.frozen_in_source ? trainable_part_bytes(plan, input, segment)
                                : hi_part_bytes(plan, input, segment);
}

void lay_out_weights(const PlanInput& input, const Placement& placement, const Plan& plan,
                     Packer& pack, MemoryMap& map) {
  const bool compact = plan.mesh.weight_shards() > 1;
  const int count = static_cast<int>(input.spec->segments.size());
  for (int s = 0; s < count; ++s) {
    const int64_t part = hi_part_bytes(plan, input, s);
    map.segments[s].home = part > 0 && has_home_on_device(input, placement, s);
    if (part == 0 || map.segments[s].home) continue;
    if (placement.hi_in_host[s]) {
      map.segments[s].host_hi = {Arena::kHost, pack.take(Arena::kHost, part, "weights, resident"),
                                 compact};
    }
  }
  for (int s = 0; s < count && input.device.discrete; ++s) {
    const bool resident = placement.hi_on_device[s] || map.segments[s].home;
    if (!resident || hi_full_bytes(input, s) == 0) continue;
    const char* purpose = map.segments[s].home ? "weights, resident" : "weights, copied";
    map.segments[s].device_hi = {
        Arena::kDevice, pack.take(Arena::kDevice, hi_full_bytes(input, s), purpose), false};
  }
}

// Of the chunks of a run, which all are of one segment.
int count_resident(const ChunkRun& run, const Placement& placement, bool home) {
  return home ? run.count : count_in(run, placement.state_in_host);
}

bool is_home(const Plan& plan, const MemoryMap& map, const ChunkRun& run) {
  return map.segments[plan.layout.chunks[run.first].segment].home;
}

void lay_out_resident_state(const Ground& ground, const Placement& placement, const Plan& plan,
                            Packer& pack, MemoryMap& map) {
  for (const ChunkRun& run : ground.trainable) {
    const bool home = is_home(plan, map, run);
    const int resident = count_resident(run, placement, home);
    if (resident == 0) continue;
    const Arena arena = home ? Arena::kDevice : Arena::kHost;
    const int64_t bytes = state_bytes(plan, run.first);
    int64_t at = pack.take(arena, bytes, "optimizer state, resident", resident);
    if (map.state.empty()) continue;
    for (int c = run.first; c < run.first + run.count; ++c) {
      if (!home && !placement.state_in_host[c]) continue;
      map.state[c] = {arena, at};
      at += Packer::stride(arena, bytes);
    }
  }
}

// What is spilled by itself starts on a checksum block.
void lay_out_stored_state(const Ground& ground, const Placement& placement, const Plan& plan,
                          Packer& pack, MemoryMap& map) {
  for (const ChunkRun& run : ground.trainable) {
    const int stored = run.count - count_resident(run, placement, is_home(plan, map, run));
    if (stored == 0) continue;
    const bool behind = map.segments[plan.layout.chunks[run.first].segment].writes_behind;
    const int64_t apart =
        behind ? state_piece(plan, run.first).count * width_of(Plane::kExpAvgSq, plan.recipe) : 0;
    const int64_t first = Packer::stride(Arena::kNvme, state_bytes(plan, run.first) - apart);
    const int64_t both = first + Packer::stride(Arena::kNvme, apart);
    int64_t at = pack.take(Arena::kNvme, both, "optimizer state", stored);
    if (map.nvme_state.empty()) continue;
    for (int c = run.first; c < run.first + run.count; ++c) {
      if (placement.state_in_host[c]) continue;
      map.nvme_state[c] = {Arena::kNvme, at, behind ? at + first : -1};
      at += both;
    }
  }
}

// Lays out what updates change and no memory holds, the other side of all that, and frozen weights,
// which have one side. Addresses count from the start of a segment, so its frozen part comes last.
void lay_out_stored(const PlanInput& input, const Ground& ground, const Placement& placement,
                    Plan& plan, Packer& pack, MemoryMap& map) {
  const int64_t& used = plan.arenas.bytes[static_cast<size_t>(Arena::kNvme)];
  const int64_t begin = used;
  const bool compact = plan.mesh.weight_shards() > 1;
  const auto take = [&](int64_t bytes) { return pack.take(Arena::kNvme, bytes, "weights"); };
  const int count = static_cast<int>(map.segments.size());
  for (int s = 0; s < count; ++s) {
    SegmentPlaces& places = map.segments[s];
    if (places.home || places.host_hi.exists() || nvme_part_bytes(plan, input, s) == 0) continue;
    places.nvme_hi = {Arena::kNvme, take(trainable_part_bytes(plan, input, s)), compact};
  }
  lay_out_stored_state(ground, placement, plan, pack, map);
  if (placement.two_sides) {
    plan.sides = {begin, used - begin};
    pack.take(Arena::kNvme, plan.sides.bytes, "other sides");
  }
  for (int s = 0; s < count; ++s) {
    SegmentPlaces& places = map.segments[s];
    if (!places.nvme_hi.exists()) continue;
    const int64_t trainable = trainable_part_bytes(plan, input, s);
    const int64_t frozen = nvme_part_bytes(plan, input, s) - trainable;
    places.nvme_frozen = {Arena::kNvme, take(frozen) - trainable, compact};
  }
}

void lay_out_gradients(const PlanInput& input, const Placement& placement, Packer& pack,
                       MemoryMap& map) {
  const Arena compute = compute_arena(input);
  const bool compact = input.mesh.gradient_shards() > 1;
  for (int s = 0; s < static_cast<int>(map.segments.size()); ++s) {
    if (!trainable(input, s)) continue;
    SegmentPlaces& places = map.segments[s];
    if (input.update().waits) {
      // Only what this rank will update from goes to NVMe, also where it has summed all of it.
      const int64_t spilled =
          shard::share_of(gradient_full_bytes(input, s), input.mesh.state_shards());
      if (places.home || placement.grad_in_host[s]) {
        const Arena arena = places.home ? Arena::kDevice : Arena::kHost;
        places.held_gradient = {
            arena, pack.take(arena, gradient_part_bytes(input, s), "gradients, held"), compact};
      } else {
        places.nvme_gradient = {Arena::kNvme,
                                pack.take(Arena::kNvme, spilled, "gradients, spilled"),
                                input.mesh.state_shards() > 1};
      }
    }
    if (accumulates_in_place(input, placement, s)) {
      places.accumulator = places.held_gradient;
    } else if (accumulates_apart(input, placement, s)) {
      const char* purpose =
          is_shared(input, s) ? "gradient of the tied matrix" : "gradients, summed";
      places.accumulator = {compute, pack.take(compute, gradient_full_bytes(input, s), purpose),
                            false};
    }
  }
}

// Where the gradients of units wait that forward has updated before it keeps anything above them.
SharedSlots shared_slots(const PlanInput& input, const MemoryMap& map) {
  SharedSlots slots;
  // A later window's forward would keep something where an earlier one's backward has summed.
  if (compute_arena(input) != Arena::kHost || input.windows.count > 1) return slots;
  for (int s = 0; s < static_cast<int>(map.segments.size()); ++s) {
    const Place& held = map.segments[s].held_gradient;
    if (!held.exists() || is_shared(input, s)) continue;
    slots.add(input.spec->segments[s].unit, held.base,
              round_up(gradient_part_bytes(input, s), kPageBytes));
  }
  return slots;
}

// Gradients of the head, and of a matrix that it shares, begin where forward ends: nothing can
// wait in their room until then.
bool may_write_behind(const PlanInput& input, int segment) {
  const bool head = input.spec->segments[segment].kind == model::SegmentKind::kHead;
  return !head && !is_shared(input, segment) && !is_external(input, segment);
}

void find_rooms_to_write_behind(const PlanInput& input, const Placement& placement,
                                const SharedSlots& slots, MemoryMap& map) {
  for (int s = 0; s < static_cast<int>(map.segments.size()); ++s) {
    const Place& held = map.segments[s].held_gradient;
    const bool in_host = held.exists() && held.arena == Arena::kHost;
    if (!placement.write_behind || !in_host || !may_write_behind(input, s)) continue;
    const bool shared = compute_arena(input) == Arena::kHost && input.windows.count == 1;
    map.segments[s].writes_behind = !shared || slots.is_free(held.base);
  }
}

void lay_out_exchanges(const PlanInput& input, Packer& pack, MemoryMap& map) {
  constexpr int64_t kAlignment = 256;
  if (is_external(input, 0)) return;
  const model::Architecture& a = input.spec->architecture;
  const auto place = [&](ValueKind kind, int64_t bytes, int count, const char* purpose) {
    Exchange& one =
        map.exchanges[static_cast<size_t>(kind) - static_cast<size_t>(ValueKind::kTokens)];
    if (count == 0) return;
    one.bytes = bytes;
    one.stride = round_up(bytes, kAlignment);
    one.count = count;
    one.host = pack.take(Arena::kHost, one.stride * count, purpose);
    one.device =
        input.device.discrete ? pack.take(Arena::kDevice, one.stride * count, purpose) : one.host;
  };
  const char* const purpose = "inputs and results";
  place(ValueKind::kTokens, model::token_bytes(input.shape), input.micro_batches, purpose);
  place(ValueKind::kTargets, model::target_bytes(input.shape), input.micro_batches, purpose);
  place(ValueKind::kPositions, input.shape.logit_rows() * 4, 1, purpose);
  place(ValueKind::kLossSum, 8, input.micro_batches, purpose);
  place(ValueKind::kLogits, input.shape.logit_rows() * a.vocabulary * 4, 1, purpose);
  const int tables = model::rope_tables(a);
  int64_t table_bytes = 0;
  for (int t = 0; t < tables; ++t) {
    table_bytes = std::max(table_bytes, model::rope_bytes(a, t, input.shape));
  }
  place(ValueKind::kRope, table_bytes, tables, "position tables");
}

void lay_out_caches(const PlanInput& input, Packer& pack, MemoryMap& map) {
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    const int64_t bytes = model::cache_bytes(*input.spec, s, input.shape, input.device);
    map.cache.push_back(bytes == 0 ? -1
                                   : pack.take(compute_arena(input), bytes, "keys and values"));
  }
}

// Norm partials of what is summed on the device, and room for the sums.
void lay_out_device_norms(const PlanInput& input, const Plan& plan, Packer& pack, MemoryMap& map) {
  map.device_norm.assign(map.segments.size(), -1);
  for (int s = 0; s < static_cast<int>(map.segments.size()); ++s) {
    if (!map.segments[s].home || !trainable(input, s)) continue;
    const int first = plan.layout.first_chunk[s], last = plan.layout.first_chunk[s + 1];
    const int64_t parts = int64_t{last - first} * plan.layout.shard_count;
    map.device_norm[s] = pack.take(Arena::kDevice, kNormBytes * parts, "norm partials");
    int64_t largest = 0;
    for (int c = first; c < last; ++c) {
      largest = std::max(largest, plan.layout.part_numel(c));
    }
    map.norm_scratch_bytes =
        std::max(map.norm_scratch_bytes, model::norm_workspace_bytes(largest, parts, input.device));
  }
  if (map.norm_scratch_bytes == 0) return;
  map.norm_scratch = pack.take(Arena::kDevice, map.norm_scratch_bytes, "workspace");
}

void lay_out_bounce_buffers(const PlanInput& input, Packer& pack, MemoryMap& map) {
  for (int i = 0; i < kLaneCount; ++i) {
    const int64_t bytes = bounce_bytes(input, static_cast<Lane>(i));
    if (bytes == 0) continue;
    const Arena arena = bounce_arena(input.device);
    map.bounce[static_cast<size_t>(i)] = {pack.take(arena, bytes, "bounce buffers"), bytes};
  }
}

// A map whose states have no chunks is measured alone.
void fill(const PlanInput& input, const Ground& ground, const Placement& placement, Plan& plan,
          MemoryMap& map) {
  Packer pack(plan.arenas);
  const size_t count = input.spec->segments.size();
  map.segments.resize(count);
  map.decision = pack.take(Arena::kControl, kDecisionBytes, "decision");
  if (input.mesh.pipeline > 1)
    map.norm_sum = pack.take(Arena::kControl, kNormBytes, "norm partials");
  for (size_t s = 0; s < count; ++s) {
    const int chunks = plan.layout.first_chunk[s + 1] - plan.layout.first_chunk[s];
    map.norm.push_back(
        pack.take(Arena::kControl, kNormBytes * chunks * plan.layout.shard_count, "norm partials"));
  }
  lay_out_exchanges(input, pack, map);
  lay_out_bounce_buffers(input, pack, map);
  lay_out_caches(input, pack, map);
  lay_out_weights(input, placement, plan, pack, map);
  lay_out_resident_state(ground, placement, plan, pack, map);
  lay_out_gradients(input, placement, pack, map);
  lay_out_device_norms(input, plan, pack, map);
  SharedSlots slots = shared_slots(input, map);
  lay_out_activations(input, ground, placement, pack, slots, map);
  lay_out_interiors(input, ground, placement, pack, slots, map);
  find_rooms_to_write_behind(input, placement, slots, map);
  lay_out_stored(input, ground, placement, plan, pack, map);
  map.weights_ring = pack.take(Arena::kHost, placement.weights_ring, "weights ring");
  map.state_ring = pack.take(Arena::kHost, placement.state_ring, "optimizer state ring");
  map.gradient_ring = pack.take(Arena::kHost, placement.gradient_ring, "gradient ring");
  map.activation_ring = pack.take(Arena::kHost, placement.activation_ring, "activation ring");
  map.device_weights_ring =
      pack.take(Arena::kDevice, placement.device_weights_ring, "weights ring");
  map.device_gradient_ring =
      pack.take(Arena::kDevice, placement.device_gradient_ring, "gradient ring");
}

}  // namespace

MemoryMap lay_out(const PlanInput& input, const Ground& ground, const Placement& placement,
                  Plan& plan) {
  MemoryMap map;
  map.state.resize(plan.layout.chunks.size());
  map.nvme_state.resize(plan.layout.chunks.size());
  fill(input, ground, placement, plan, map);
  return map;
}

void measure(const PlanInput& input, const Ground& ground, const Placement& placement, Plan& plan) {
  MemoryMap map;
  plan.arenas = {};
  fill(input, ground, placement, plan, map);
}

}  // namespace strata::plan

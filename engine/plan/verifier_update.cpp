// SPDX-License-Identifier: Apache-2.0
// Updates: what Optimize, NormPartial, Decide, Gather and Reduce must name, element by element.
#include <fmt/core.h>

#include <algorithm>

#include "engine/plan/verifier_op_check.h"

namespace strata::plan::verifying {
namespace {

class UpdateCheck : OpCheck {
 public:
  using OpCheck::OpCheck;

  void check() {
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (value.kind == ValueKind::kScratch || value.kind == ValueKind::kDecision ||
          value.segment == op_.segment) {
        continue;
      }
      return bad("value", fmt::format("names {}", describe(facts_, value)));
    }
    if (op_.kind == OpKind::kOptimize) check_optimize();
    if (op_.kind == OpKind::kNormPartial) check_norm();
    if (op_.kind == OpKind::kGather) check_gather();
    if (op_.kind == OpKind::kReduce) check_reduce();
  }

 private:
  // The op's elements of a plane or, with width 4, of the gradient, as joined ranges.
  std::vector<Range> elements(Mode mode, ValueKind kind, Plane plane, int width, bool* disjoint) {
    std::vector<Range> ranges;
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (access.mode != mode || value.kind != kind) continue;
      if (kind == ValueKind::kPlane && value.plane != plane) continue;
      ranges.push_back({access.first / width, (access.first + access.bytes) / width});
    }
    *disjoint = join(ranges);
    return ranges;
  }

  // Whether one access has exactly the wanted elements, which is the usual case.
  bool is_one(Mode mode, ValueKind kind, Plane plane, int width, const Range& wanted) const {
    int count = 0;
    bool is_wanted = true;
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (access.mode != mode || value.kind != kind) continue;
      if (kind == ValueKind::kPlane && value.plane != plane) continue;
      ++count;
      is_wanted &= access.first / width == wanted.begin &&
                   (access.first + access.bytes) / width == wanted.end;
    }
    return count == 1 && is_wanted;
  }

  bool covers(Mode mode, ValueKind kind, Plane plane, const std::vector<Range>& wanted) {
    const int width = kind == ValueKind::kGradient ? 4 : facts_.width(plane);
    if (wanted.size() == 1 && is_one(mode, kind, plane, width, wanted[0])) return true;
    bool disjoint = true;
    const std::vector<Range> ranges = elements(mode, kind, plane, width, &disjoint);
    return disjoint && ranges == wanted;
  }

  void check_final_gradient() {
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (value.kind != ValueKind::kGradient) continue;
      if (value.index != facts_.final_contributions(op_.segment)) {
        bad("contributions", fmt::format("uses {} of {}", describe(facts_, value),
                                         facts_.final_contributions(op_.segment)));
      }
      if (op_.kind != OpKind::kReduce && value.reduced != facts_.plan.mesh.reductions()) {
        bad("contributions", fmt::format("uses {}", describe(facts_, value)));
      }
    }
  }

  void check_optimize() {
    if (op_.chunk < 0 || op_.chunk_count < 1) return bad("index", "names no chunk");
    std::vector<Range> parts;
    for (int c = op_.chunk; c < op_.chunk + op_.chunk_count; ++c) {
      const shard::Chunk& chunk = facts_.plan.layout.chunks[c];
      if (chunk.segment != op_.segment) return bad("index", "names chunks of another segment");
      if (chunk.frozen) return bad("frozen", fmt::format("chunk {} is frozen", c));
      parts.push_back(facts_.own_part(c));
    }
    join(parts);
    for (const Plane plane : kPlanes) {
      if (facts_.width(plane) == 0) continue;
      for (const Mode mode : {Mode::kRead, Mode::kWrite}) {
        if (covers(mode, ValueKind::kPlane, plane, parts)) continue;
        bad("coverage",
            fmt::format("plane {} does not {} its part of the chunks", static_cast<int>(plane),
                        mode == Mode::kRead ? "read" : "write"));
      }
    }
    if (!covers(Mode::kRead, ValueKind::kGradient, Plane::kHi, parts)) {
      bad("coverage", "does not read the gradient of its part of the chunks");
    }
    check_final_gradient();
    check_generations();
    check_in_place();
  }

  // Planes are updated in place; only exp_avg_sq may be written elsewhere.
  void check_in_place() {
    for (const Access& to : accesses_) {
      if (to.mode != Mode::kWrite || to.value.kind != ValueKind::kPlane ||
          to.value.plane == Plane::kExpAvgSq) {
        continue;
      }
      const bool there = std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& from) {
        return from.mode == Mode::kRead && from.value.kind == ValueKind::kPlane &&
               from.value.plane == to.value.plane && from.arena == to.arena &&
               from.offset - from.first == to.offset - to.first;
      });
      if (!there) bad("place", fmt::format("{} is not where it was", describe(facts_, to.value)));
    }
  }

  void check_generations() {
    const UpdateRule& rule = facts_.plan.update();
    if (op_.predicate != rule.predicate) {
      bad("predicate", "has another predicate than updates of the plan's mode");
    }
    for (const Access& access : accesses_) {
      if (access.value.kind != ValueKind::kPlane) continue;
      const Generation wanted = access.mode == Mode::kRead ? Generation::kOld : rule.next;
      if (access.value.generation == wanted) continue;
      bad("generation", fmt::format("{} {}", access.mode == Mode::kRead ? "reads" : "writes",
                                    describe(facts_, access.value)));
    }
  }

  void check_norm() {
    bool disjoint = true;
    elements(Mode::kRead, ValueKind::kGradient, Plane::kHi, 4, &disjoint);
    if (!disjoint) bad("coverage", "reads elements twice");
    check_final_gradient();
  }

  // A gather reads its own part of exactly the chunks that it writes, and reads and writes the same
  // generation of weights. Frozen elements have a generation of their own, which never changes.
  void check_gather() {
    const Value* value = nullptr;
    const Value* of_kind[2] = {nullptr, nullptr};  // trainable, frozen
    const int64_t width = facts_.width(Plane::kHi);
    for (const Access& access : accesses_) {
      if (access.value.kind != ValueKind::kPlane) continue;
      const bool frozen = access.first >= facts_.segment(op_.segment).trainable_numel * width;
      const Value*& seen = of_kind[frozen ? 1 : 0];
      if (seen != nullptr && !(access.value == *seen)) {
        return bad("transfer", fmt::format("reads and writes {} and {}", describe(facts_, *seen),
                                           describe(facts_, access.value)));
      }
      seen = value = &access.value;
    }
    if (value == nullptr) return;
    bool disjoint = true;
    const std::vector<Range> whole = elements(Mode::kWrite, ValueKind::kPlane, value->plane,
                                              facts_.width(value->plane), &disjoint);
    std::vector<Range> parts;
    if (!disjoint || !parts_within(whole, &parts)) {
      return bad("coverage", "does not write whole chunks once");
    }
    if (!covers(Mode::kRead, ValueKind::kPlane, value->plane, parts)) {
      bad("coverage", "does not read its own part of the chunks that it writes");
    }
  }

  // Own parts of the segment's chunks that lie in `whole`; false when `whole` cuts a chunk.
  bool parts_within(const std::vector<Range>& whole, std::vector<Range>* parts) const {
    const shard::Layout& layout = facts_.plan.layout;
    std::vector<Range> chunks;
    for (int c = layout.first_chunk[op_.segment]; c < layout.first_chunk[op_.segment + 1]; ++c) {
      const Range range = {layout.chunks[c].offset,
                           layout.chunks[c].offset + layout.chunks[c].numel};
      const bool inside = std::any_of(whole.begin(), whole.end(), [&](const Range& r) {
        return r.begin <= range.begin && range.end <= r.end;
      });
      if (!inside) continue;
      chunks.push_back(range);
      parts->push_back(facts_.own_part(c));
    }
    join(chunks);
    join(*parts);
    return chunks == whole;
  }

  void check_reduce() {
    check_final_gradient();
    // Sums are nested: shards are summed first.
    const Mesh& mesh = facts_.plan.mesh;
    const bool over_copies = op_.group == GroupName::kReplicate;
    const int before = over_copies && mesh.shards() > 1 ? 1 : 0;
    for (const Access& access : accesses_) {
      if (access.value.kind == ValueKind::kScratch) continue;
      if (access.value.kind == ValueKind::kGradient &&
          access.value.reduced == before + (access.mode == Mode::kWrite ? 1 : 0))
        continue;
      return bad("transfer", fmt::format("{} {}", access.mode == Mode::kRead ? "reads" : "writes",
                                         describe(facts_, access.value)));
    }
    if (over_copies) return check_reduced_parts();
    bool disjoint = true;
    const std::vector<Range> whole =
        elements(Mode::kRead, ValueKind::kGradient, Plane::kHi, 4, &disjoint);
    std::vector<Range> parts;
    if (!disjoint || !parts_within(whole, &parts)) {
      return bad("coverage", "does not read whole chunks once");
    }
    const bool shards = facts_.plan.mesh.gradient_shards() > 1;
    if (!covers(Mode::kWrite, ValueKind::kGradient, Plane::kHi, shards ? parts : whole)) {
      bad("coverage", shards ? "does not write its own part of the chunks that it reads"
                             : "does not write what it reads");
    }
  }

  // Copies sum the part of the gradient that this rank keeps.
  void check_reduced_parts() {
    const bool shards = facts_.plan.mesh.gradient_shards() > 1;
    const std::vector<Range> kept = facts_.trainable_parts(op_.segment, shards);
    for (const Mode mode : {Mode::kRead, Mode::kWrite}) {
      if (covers(mode, ValueKind::kGradient, Plane::kHi, kept)) continue;
      bad("coverage", "does not sum what this rank keeps of the gradient");
    }
  }
};

}  // namespace

namespace {

void check_decide(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  int sums = 0;
  for (const Access& access : program.accesses_of(program.ops[index])) {
    const Value& value = access.value;
    const bool writes = access.mode == Mode::kWrite;
    if (value.kind == ValueKind::kDecision &&
        value.generation != (writes ? Generation::kNew : Generation::kOld)) {
      reporter.add("generation", program.name, index, "decide makes a decision from the last one");
    }
    if (value.kind == ValueKind::kNormPartial &&
        (facts.plan.mesh.pipeline > 1 || value.reduced != facts.plan.mesh.norm_reductions())) {
      reporter.add("contributions", program.name, index,
                   fmt::format("decide uses the {}", describe(facts, value)));
    }
    sums += value.kind == ValueKind::kNormSum ? 1 : 0;
  }
  const bool staged = facts.plan.mesh.pipeline > 1 && program.name == ProgramName::kStep;
  if (sums == (staged ? 1 : 0)) return;
  reporter.add(
      "contributions", program.name, index,
      staged ? "decide does not use the sum over all stages" : "decide uses a sum of stages");
}

// Checks that all norm partials of a stage become part of the sum over all stages.
void check_norm_sum(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  bool writes = false;
  for (const Access& access : program.accesses_of(program.ops[index])) {
    const Value& value = access.value;
    const bool reads = access.mode == Mode::kRead && value.kind == ValueKind::kNormPartial &&
                       value.reduced == facts.plan.mesh.norm_reductions();
    const bool sum = access.mode == Mode::kWrite && value.kind == ValueKind::kNormSum &&
                     access.first == 0 && access.bytes == facts.extent(value);
    writes |= sum;
    if (reads || sum) continue;
    reporter.add("transfer", program.name, index,
                 fmt::format("has {} in a sum over stages", describe(facts, value)));
  }
  if (!writes) reporter.add("transfer", program.name, index, "does not leave a sum over stages");
}

// Checks that norm partials of all segments are reduced in place.
void check_reduced_norms(const Facts& facts, const Program& program, int64_t index,
                         Reporter& reporter) {
  const auto accesses = program.accesses_of(program.ops[index]);
  // Shards are summed first. Copies have the same partials.
  const GroupName group = program.ops[index].group;
  if (group == GroupName::kReplicate || group == GroupName::kContext ||
      (group == GroupName::kShard && facts.plan.mesh.gradient_shards() == 1)) {
    reporter.add("collective", program.name, index, "ranks that have the same norm partials");
  }
  const bool later = group == GroupName::kTensor;
  const int before = later && facts.plan.mesh.gradient_shards() > 1 ? 1 : 0;
  for (const Access& access : accesses) {
    const bool read = access.mode == Mode::kRead;
    const bool paired = std::any_of(accesses.begin(), accesses.end(), [&](const Access& other) {
      return other.mode != access.mode && other.offset == access.offset &&
             other.bytes == access.bytes && other.value.segment == access.value.segment;
    });
    if (access.value.kind == ValueKind::kNormPartial &&
        access.value.reduced == before + (read ? 0 : 1) && paired) {
      continue;
    }
    reporter.add("transfer", program.name, index,
                 fmt::format("reduce {} {} in its sum of norm partials", read ? "reads" : "writes",
                             describe(facts, access.value)));
  }
}

}  // namespace

void check_update(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  const bool collective =
      op.kind == OpKind::kGather || op.kind == OpKind::kReduce || op.kind == OpKind::kAllToAll;
  if (collective && facts.plan.mesh.size_of(op.group) == 1) {
    return reporter.add("collective", program.name, index, "there is one rank");
  }
  if (collective && op.lane != comm_lane_of(op.group)) {
    return reporter.add("collective", program.name, index, "on the lane of another group");
  }
  const bool inner = collective && comm_lane_of(op.group) == Lane::kCommInner;
  if (op.kind == OpKind::kGather && op.group != GroupName::kShard && !inner) {
    return reporter.add("collective", program.name, index, "copies have nothing to gather");
  }
  if (op.kind == OpKind::kDecide) return check_decide(facts, program, index, reporter);
  if (op.kind == OpKind::kReduce && op.group == GroupName::kPipeline) {
    return check_norm_sum(facts, program, index, reporter);
  }
  if (op.kind == OpKind::kReduce && op.segment < 0) {
    return check_reduced_norms(facts, program, index, reporter);
  }
  if (op.segment < 0) {
    return reporter.add("index", program.name, index, "an update without a segment");
  }
  if (inner) return check_inner_exchange(facts, program, index, reporter);
  UpdateCheck(facts, program, index, reporter).check();
}

}  // namespace strata::plan::verifying

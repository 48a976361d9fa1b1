// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

const char* const kGenerationNames[] = {"+0", "+u", "+1"};

}  // namespace

void Reporter::add(const char* kind, ProgramName program, int64_t op, std::string text) {
  if (full()) return;
  report_.violations.push_back({kind, program, op, std::move(text)});
}

void Reporter::add(VerifyReport other) {
  for (Violation& violation : other.violations) {
    if (!full()) report_.violations.push_back(std::move(violation));
  }
}

bool join(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  bool disjoint = true;
  size_t kept = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin > ranges[kept].end) {
      ranges[++kept] = ranges[i];
      continue;
    }
    if (ranges[i].begin < ranges[kept].end) disjoint = false;
    ranges[kept].end = std::max(ranges[kept].end, ranges[i].end);
  }
  if (!ranges.empty()) ranges.resize(kept + 1);
  return disjoint;
}

Facts::Facts(const Plan& plan_in, const model::ModelSpec& spec_in)
    : plan(plan_in),
      spec(spec_in),
      sharers(spec_in.segments.size(), 0),
      wants_gradient(spec_in.segments.size(), 0),
      readers(spec_in.segments.size()) {
  for (int i = 0; i < segment_count(); ++i) {
    bool wants = segment(i).trainable_numel > 0;
    for (const int from : segment(i).inputs) {
      wants |= wants_gradient[from] != 0;
      readers[from].push_back(i);
    }
    wants_gradient[i] = wants;
  }
  for (int i = segment_count() - 1; i >= 0; --i) {
    const int shares = segment(i).shares;
    if (shares >= 0 && shares < segment_count()) ++sharers[shares];
  }
  std::vector<int> sums(spec.segments.size(), 0);
  for (const model::ExternalUse& use : spec.uses) {
    std::vector<int>& sums_then = sums_by_use.emplace_back();
    for (const int s : use.segments) sums_then.push_back(sums[s] += use.backward ? 1 : 0);
  }
  row_bytes = model::row_bytes(spec, plan.shape, plan.recipe);
  boundary_bytes = model::boundary_bytes(spec, plan.shape, plan.recipe);
  for (const LedgerLine& line : plan.arenas.lines) {
    if (line.arena > Arena::kControl || line.bytes <= 0) continue;
    ledger[static_cast<size_t>(line.arena)].push_back({line.offset, line.offset + line.bytes});
  }
  for (size_t arena = 0; arena < kArenaCount; ++arena) {
    ledger_overlaps[arena] = !join(ledger[arena]);
  }
  for (const Holding& holding : plan.boundary) {
    if (holding.value.kind == ValueKind::kDecision) decision = &holding;
  }
}

Range Facts::own_part(int chunk) const {
  const shard::Chunk& c = plan.layout.chunks[chunk];
  const int shards = plan.mesh.state_shards();
  const int64_t part = shard::share_of(c.numel, shards);
  const int64_t begin = c.offset + (shards > 1 ? plan.mesh.shard_rank() : 0) * part;
  return {begin, begin + part};
}

Range Facts::own_keys() const {
  const int64_t bytes = model::own_key_bytes(spec, plan.shape);
  const int64_t begin = plan.shape.context.rank * bytes;
  return {begin, begin + bytes};
}

Range Facts::own_scores() const {
  const int64_t bytes = model::own_score_bytes(plan.shape);
  return {spec.tensor.rank * bytes, (spec.tensor.rank + 1) * bytes};
}

Range Facts::own_rows(const Value& value) const {
  const int64_t bytes = extent(value) / spec.tensor.ranks;
  return {spec.tensor.rank * bytes, (spec.tensor.rank + 1) * bytes};
}

int Facts::last_part(OpKind kind, int index) const {
  const model::Parts of = parts(index);
  switch (kind) {
    case OpKind::kBackward:
      return of.backward_last();
    case OpKind::kLoss:
      return of.loss_last();
    case OpKind::kEvaluate:
      return of.evaluate_last();
    case OpKind::kLogits:
    case OpKind::kWeightGradient:
      return 0;
    default:
      return of.last();
  }
}

std::vector<Range> Facts::trainable_parts(int index, bool own) const {
  std::vector<Range> parts;
  for (int c = plan.layout.first_chunk[index]; c < plan.layout.first_chunk[index + 1]; ++c) {
    const shard::Chunk& chunk = plan.layout.chunks[c];
    if (chunk.frozen) continue;
    parts.push_back(own ? own_part(c) : Range{chunk.offset, chunk.offset + chunk.numel});
  }
  join(parts);
  return parts;
}

int64_t Facts::extent(const Value& value) const {
  switch (value.kind) {
    case ValueKind::kPlane: {
      const model::Segment& s = segment(value.segment);
      return (value.plane == Plane::kHi ? s.numel() : s.trainable_numel) * width(value.plane);
    }
    case ValueKind::kGradient:
      return segment(value.segment).numel() * 4;
    case ValueKind::kActivation:
    case ValueKind::kActivationGradient:
      return boundary_bytes;
    case ValueKind::kRows:
      return spec.tensor.ranks * row_bytes;
    case ValueKind::kBranch:
    case ValueKind::kBranchGradient:
      return spec.tensor.ranks * model::branch_bytes(spec, plan.shape);
    case ValueKind::kRowGradient:
      return spec.tensor.ranks * model::row_gradient_bytes(spec, value.segment, plan.shape,
                                                           plan.recipe, plan.device.interior);
    case ValueKind::kKeys:
    case ValueKind::kKeyGradient:
      return plan.shape.context.ranks * model::own_key_bytes(spec, plan.shape);
    case ValueKind::kHeads:
    case ValueKind::kHeadsGradient:
      return plan.shape.context.ranks *
             model::swapped_head_bytes(spec.architecture, plan.shape, plan.device.interior);
    case ValueKind::kAttended:
    case ValueKind::kAttendedGradient:
      return plan.shape.context.ranks *
             model::swapped_attended_bytes(spec.architecture, plan.shape, plan.device.interior);
    case ValueKind::kProjected:
    case ValueKind::kProjectedGradient:
      return model::projected_bytes(spec, plan.shape, plan.device.interior);
    case ValueKind::kNormSums:
      return model::norm_sum_bytes(plan.shape);
    case ValueKind::kNormGradient:
      return model::norm_gradient_bytes(segment(value.segment));
    case ValueKind::kScores:
      return spec.tensor.ranks * model::own_score_bytes(plan.shape);
    case ValueKind::kCache:
      return model::cache_bytes(spec, value.segment, plan.shape, plan.device);
    case ValueKind::kNormSum:
      return 16;
    case ValueKind::kTokens:
      return model::token_bytes(plan.shape);
    case ValueKind::kTargets:
      return plan.shape.rows * plan.shape.length * 4;
    case ValueKind::kPositions:
      return plan.shape.logit_rows() * 4;
    case ValueKind::kRope:
      return model::rope_bytes(spec.architecture, value.index, plan.shape);
    case ValueKind::kLossSum:
      return 8;
    case ValueKind::kLogits:
      return plan.shape.logit_rows() * spec.architecture.vocabulary * 4;
    default:
      return -1;
  }
}

bool Facts::passes(const Op& op, bool backward) const {
  if ((op.kind != OpKind::kSend && op.kind != OpKind::kRecv) || op.segment < 0) return false;
  const bool received = segment(op.segment).kind == model::SegmentKind::kReceived;
  return (op.kind == OpKind::kRecv) == (received != backward);
}

int Facts::exchanged(ProgramName program, ValueKind kind) const {
  if (kind == ValueKind::kRope) return model::rope_tables(spec.architecture);
  const bool one = kind == ValueKind::kPositions || kind == ValueKind::kLogits;
  const int count = micro_batches_of(program);
  return one ? std::min(count, 1) : count;
}

int Facts::micro_batches_of(ProgramName name) const {
  if (name == ProgramName::kStep) return plan.micro_batches;
  if (name == ProgramName::kEval) return plan.eval_micro_batches;
  return name == ProgramName::kGenerate ? std::max(plan.micro_batches, plan.eval_micro_batches) : 0;
}

std::string describe(const Facts& facts, const Value& value) {
  if (value.plane > Plane::kExpAvgSq || value.generation > Generation::kNew) return "unknown value";
  const bool named = value.segment >= 0 && value.segment < facts.segment_count();
  const std::string where =
      named ? facts.segment(value.segment).name : fmt::format("{}", value.segment);
  switch (value.kind) {
    case ValueKind::kPlane:
      return fmt::format("{}{} of {}", name_of(value.plane),
                         kGenerationNames[static_cast<int>(value.generation)], where);
    case ValueKind::kGradient:
      return fmt::format("gradient of {} with {} contributions, {} times reduced", where,
                         value.index, value.reduced);
    case ValueKind::kActivation:
      return fmt::format("activation out of {} of micro-batch {}", where, value.index);
    case ValueKind::kActivationGradient:
      return fmt::format("activation gradient out of {} of micro-batch {}, {} readers missing",
                         where, value.index, value.reduced);
    case ValueKind::kInterior:
      return fmt::format("interior of {} of micro-batch {}{}", where, value.index,
                         value.reduced > 0 ? fmt::format(", {} parts missing", value.reduced) : "");
    case ValueKind::kOperands:
      return fmt::format("operands of delayed products of {} of micro-batch {}{}", where,
                         value.index, value.reduced > 0 ? " before their last part" : "");
    case ValueKind::kNormGradient:
      return fmt::format("gradient of norms of {} with {} contributions", where, value.index);
    case ValueKind::kBranch:
    case ValueKind::kBranchGradient:
      return fmt::format("branch{} of {} of micro-batch {}, {} times reduced",
                         value.kind == ValueKind::kBranch ? "" : " gradient", where, value.index,
                         value.reduced);
    case ValueKind::kRows:
    case ValueKind::kRowGradient:
      return fmt::format("{} of {} of micro-batch {}, {} times exchanged",
                         value.kind == ValueKind::kRows ? "rows" : "gradient of rows", where,
                         value.index, value.reduced);
    case ValueKind::kKeys:
    case ValueKind::kKeyGradient:
      return fmt::format("{} of {} of micro-batch {}, {} times exchanged",
                         value.kind == ValueKind::kKeys ? "shared keys" : "gradient of shared keys",
                         where, value.index, value.reduced);
    case ValueKind::kHeads:
    case ValueKind::kHeadsGradient:
    case ValueKind::kAttended:
    case ValueKind::kAttendedGradient: {
      const bool heads = value.kind == ValueKind::kHeads || value.kind == ValueKind::kHeadsGradient;
      const bool back =
          value.kind == ValueKind::kHeadsGradient || value.kind == ValueKind::kAttendedGradient;
      return fmt::format("swapped {}{} of {} of micro-batch {}, {} times exchanged",
                         back ? "gradient of " : "", heads ? "heads" : "attended", where,
                         value.index, value.reduced);
    }
    case ValueKind::kProjected:
    case ValueKind::kProjectedGradient:
    case ValueKind::kNormSums:
      return fmt::format("{} of {} of micro-batch {}, {} times exchanged",
                         value.kind == ValueKind::kProjected  ? "projected queries and keys"
                         : value.kind == ValueKind::kNormSums ? "sums of norms"
                                                              : "gradient of queries and keys",
                         where, value.index, value.reduced);
    case ValueKind::kScratch:
      return "scratch";
    case ValueKind::kCache:
      return fmt::format("keys and values of {}", where);
    case ValueKind::kTokens:
      return fmt::format("tokens of micro-batch {}", value.index);
    case ValueKind::kTargets:
      return fmt::format("targets of micro-batch {}", value.index);
    case ValueKind::kPositions:
      return "positions of logits";
    case ValueKind::kRope:
      return fmt::format("position table {}", value.index);
    case ValueKind::kLossSum:
      return fmt::format("loss sum of micro-batch {}", value.index);
    case ValueKind::kScores:
      return fmt::format("scores of {} of micro-batch {}, {} times exchanged", where, value.index,
                         value.reduced);
    case ValueKind::kLogits:
      return value.reduced > 0 ? "summed logits" : "logits";
    case ValueKind::kNormPartial:
      return fmt::format("{}norm partial of {}", value.reduced > 0 ? "reduced " : "", where);
    case ValueKind::kNormSum:
      return "sum of all stages' norm partials";
    case ValueKind::kDecision:
      return fmt::format("decision{}", kGenerationNames[static_cast<int>(value.generation)]);
  }
  return "unknown value";
}

std::string describe(const Range& range) {
  return fmt::format("[{}, {})", range.begin, range.end);
}

}  // namespace strata::plan::verifying

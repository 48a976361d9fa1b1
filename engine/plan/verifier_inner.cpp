// SPDX-License-Identifier: Apache-2.0
// What tensor and context ranks exchange between the parts of a segment: each collective must have
// all of one value, in its place.
#include <algorithm>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

// The one value that a collective reads, and the one that it writes; null where there are others.
struct Exchanged {
  const Access* read = nullptr;
  const Access* write = nullptr;
};

Exchanged exchanged_by(const Program& program, const Op& op) {
  const auto accesses = exchanged_accesses(program, op);
  if (accesses.size() != 2 || accesses[0].mode != Mode::kRead || accesses[1].mode != Mode::kWrite) {
    return {};
  }
  return {&accesses[0], &accesses[1]};
}

bool has(const Access& access, const Range& range) {
  return access.first == range.begin && access.first + access.bytes == range.end;
}

bool is_in_place(const Exchanged& pair) {
  return pair.read->arena == pair.write->arena &&
         pair.read->offset - pair.read->first == pair.write->offset - pair.write->first;
}

// Logits or sums of norms, of all of which every rank has the sum, or a gradient that other ranks
// have parts of.
bool is_whole_sum(const Facts& facts, const Op& op, const Exchanged& pair) {
  const Range all = {0, pair.read->first + pair.read->bytes};
  Value before = {.kind = ValueKind::kLogits};
  Value after = {.kind = ValueKind::kLogits, .reduced = 1};
  if (pair.read->value.kind == ValueKind::kGradient) {
    const int parts = facts.final_contributions(op.segment) - 1;
    before = {.kind = ValueKind::kGradient, .segment = op.segment, .index = parts};
    after = before;
    ++after.index;
    if (!model::sums_whole(facts.spec, op.segment) ||
        all.end < facts.segment(op.segment).trainable_numel * 4) {
      return false;
    }
  } else {
    if (pair.read->value.kind == ValueKind::kNormSums) {
      before = {.kind = ValueKind::kNormSums, .segment = op.segment, .index = op.micro_batch};
      after = before;
      after.reduced = 1;
    }
    if (all.end != facts.extent(before)) return false;
  }
  return pair.read->value == before && pair.write->value == after && has(*pair.read, all) &&
         has(*pair.write, all) && is_in_place(pair);
}

// Own parts of one value become those of all ranks, or all parts the sums of own ones.
bool is_of_parts(const Facts& facts, const Op& op, const Exchanged& pair) {
  const bool gathers = op.kind == OpKind::kGather;
  const ValueKind kind = pair.write->value.kind;
  const bool of_keys = kind == ValueKind::kKeys || kind == ValueKind::kKeyGradient;
  const bool gathered =
      kind == ValueKind::kKeys || kind == ValueKind::kScores || kind == ValueKind::kRowGradient;
  const bool summed = kind == ValueKind::kKeyGradient || is_branch(kind);
  if (gathers ? !gathered : !summed) return false;
  if (of_keys != (op.group == GroupName::kContext)) return false;
  const Value before = {.kind = kind, .segment = op.segment, .index = op.micro_batch};
  Value after = before;
  after.reduced = 1;
  const Range all = {0, facts.extent(before)};
  const Range own = of_keys                      ? facts.own_keys()
                    : kind == ValueKind::kScores ? facts.own_scores()
                                                 : facts.own_rows(before);
  return pair.read->value == before && pair.write->value == after &&
         has(*pair.read, gathers ? own : all) && has(*pair.write, gathers ? all : own) &&
         is_in_place(pair);
}

// Own rows of what the segment reads, or of the gradient of its output, become those of all ranks.
bool is_of_rows(const Facts& facts, const Op& op, const Exchanged& pair) {
  const model::Segment& segment = facts.segment(op.segment);
  const bool back = pair.write->value.kind == ValueKind::kRowGradient;
  Value all = {.kind = back ? ValueKind::kRowGradient : ValueKind::kRows,
               .reduced = static_cast<uint8_t>(back ? 1 : 0),
               .segment = back ? op.segment : pair.read->value.segment,
               .index = op.micro_batch};
  Value own = all;
  own.kind = back ? ValueKind::kActivationGradient : ValueKind::kActivation;
  own.reduced = 0;
  const bool known = back ? !facts.parts(op.segment).norms_branch
                          : std::ranges::count(segment.inputs, all.segment) > 0;
  return known && pair.read->value == own && pair.write->value == all &&
         has(*pair.read, {0, facts.row_bytes}) && has(*pair.write, {0, facts.extent(all)});
}

// What is for each rank becomes what is of each, in another place.
bool is_of_each(const Facts& facts, const Op& op, const Exchanged& pair) {
  const Value before = {
      .kind = pair.read->value.kind, .segment = op.segment, .index = op.micro_batch};
  Value after = before;
  after.reduced = 1;
  const Range all = {0, facts.extent(before)};
  const bool apart = pair.read->arena != pair.write->arena ||
                     pair.read->offset + pair.read->bytes <= pair.write->offset ||
                     pair.write->offset + pair.write->bytes <= pair.read->offset;
  return is_swapped(before.kind) && pair.read->value == before && pair.write->value == after &&
         has(*pair.read, all) && has(*pair.write, all) && apart;
}

}  // namespace

// What ranks exchange within a layer: of a micro-batch, or the gradient of what all of them have.
void check_inner_exchange(const Facts& facts, const Program& program, int64_t index,
                          Reporter& reporter) {
  const Op& op = program.ops[index];
  const Exchanged pair = exchanged_by(program, op);
  const bool known = pair.read != nullptr;
  const bool tensor = op.group == GroupName::kTensor;
  if (op.kind == OpKind::kAllToAll) {
    if (known && !tensor && is_of_each(facts, op, pair)) return;
    return reporter.add("transfer", program.name, index,
                        "does not swap all of one value between context ranks");
  }
  if (known && is_of_parts(facts, op, pair)) return;
  if (known && tensor && op.kind == OpKind::kReduce && is_whole_sum(facts, op, pair)) return;
  if (known && tensor && op.kind == OpKind::kGather && is_of_rows(facts, op, pair)) return;
  reporter.add("transfer", program.name, index,
               "does not exchange all of one value that ranks share within a layer");
}

}  // namespace strata::plan::verifying

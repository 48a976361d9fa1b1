// SPDX-License-Identifier: Apache-2.0
// Form: everything that can be checked for an op, a wait or an access without executing anything.
#include <fmt/core.h>

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

const char* const kArenaNames[kArenaCount] = {"device", "host", "nvme", "control"};

bool check_layout(const Facts& facts, Reporter& reporter) {
  const shard::Layout& layout = facts.plan.layout;
  const auto bad = [&](std::string text) {
    reporter.add("layout", ProgramName::kStep, -1, std::move(text));
    return false;
  };
  if (layout.first_chunk.size() != facts.spec.segments.size() + 1 || layout.first_chunk[0] != 0 ||
      layout.first_chunk.back() != static_cast<int>(layout.chunks.size())) {
    return bad("the chunk table does not have the spec's segments");
  }
  if (layout.shard_count != facts.plan.mesh.shards()) {
    return bad(fmt::format("{} shards in the layout, {} in the mesh", layout.shard_count,
                           facts.plan.mesh.shards()));
  }
  for (int s = 0; s < facts.segment_count(); ++s) {
    int64_t next = 0;
    if (layout.first_chunk[s] > layout.first_chunk[s + 1]) return bad("chunks out of order");
    for (int c = layout.first_chunk[s]; c < layout.first_chunk[s + 1]; ++c) {
      const shard::Chunk& chunk = layout.chunks[c];
      const bool frozen = chunk.offset >= facts.segment(s).trainable_numel;
      if (chunk.segment != s || chunk.offset != next || chunk.numel <= 0 ||
          chunk.numel % layout.shard_count != 0 || chunk.frozen != frozen) {
        return bad(fmt::format("chunk {} does not continue segment {}", c, s));
      }
      next += chunk.numel;
    }
    if (next != facts.segment(s).numel())
      return bad(fmt::format("chunks do not cover segment {}", s));
  }
  return true;
}

bool check_lanes(const Facts& facts, const Program& program, Reporter& reporter) {
  const auto bad = [&](int64_t op, std::string text) {
    reporter.add("lanes", program.name, op, std::move(text));
    return false;
  };
  std::array<size_t, kLaneCount> next = {};
  int64_t collectives = 0;
  const bool staged = facts.plan.mesh.pipeline > 1;  // then check_stages() checks numbers
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const size_t lane = static_cast<size_t>(program.ops[i].lane);
    if (lane >= kLaneCount) return bad(static_cast<int64_t>(i), "no such lane");
    const std::vector<uint32_t>& list = program.lanes[lane];
    if (next[lane] >= list.size() || list[next[lane]] != i) {
      return bad(static_cast<int64_t>(i),
                 fmt::format("not at place {} of the list of lane {}", next[lane], lane));
    }
    const bool numbered = is_comm_lane(program.ops[i].lane);
    const int64_t number = numbered ? collectives++ : -1;
    if ((!staged || !numbered) && program.ops[i].number != number) {
      return bad(static_cast<int64_t>(i),
                 fmt::format("an op of number {}, which is not {}", program.ops[i].number, number));
    }
    ++next[lane];
  }
  for (size_t lane = 0; lane < kLaneCount; ++lane) {
    if (next[lane] != program.lanes[lane].size()) {
      return bad(-1, fmt::format("the list of lane {} names ops that are not on it", lane));
    }
  }
  return true;
}

bool check_waits(const Facts& facts, const Program& program, Reporter& reporter) {
  const Program& step = facts.plan.program(ProgramName::kStep);
  std::array<int64_t, kLaneCount> earlier = {};
  bool good = true;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (const Wait& wait : program.waits_of(program.ops[i])) {
      const size_t lane = static_cast<size_t>(wait.lane);
      const int64_t count = wait.count;
      const bool known = lane < kLaneCount;
      if (known && (count > 0 ? count <= earlier[lane]
                              : -count <= static_cast<int64_t>(step.lanes[lane].size()))) {
        continue;
      }
      reporter.add(
          "wait", program.name, static_cast<int64_t>(i),
          fmt::format("waits for {} of lane {}, which has {} earlier ops here and {} in step",
                      count, lane, known ? earlier[lane] : 0, known ? step.lanes[lane].size() : 0));
      good = false;
    }
    ++earlier[static_cast<size_t>(program.ops[i].lane)];
  }
  return good;
}

// Describes what is wrong with a value's fields; empty when nothing is.
std::string flaw_of(const Facts& facts, ProgramName program, const Value& value) {
  if (static_cast<int>(value.kind) >= kValueKindCount || value.plane > Plane::kExpAvgSq ||
      value.generation > Generation::kNew) {
    return "no such value";
  }
  if (value.kind == ValueKind::kScratch || value.kind == ValueKind::kDecision) return "";
  if (value.kind == ValueKind::kNormSum) {
    return facts.plan.mesh.pipeline > 1 ? "" : "there is one stage";
  }
  if (is_exchanged(value.kind)) {
    const int count = facts.exchanged(program, value.kind);
    const bool sums = value.kind == ValueKind::kLogits && facts.spec.tensor.cuts_vocabulary;
    if (value.reduced > (sums ? 1 : 0)) return "it is not exchanged between ranks";
    return value.index >= 0 && value.index < count ? "" : fmt::format("there are {}", count);
  }
  if (value.segment < 0 || value.segment >= facts.segment_count()) return "no such segment";
  if (value.kind == ValueKind::kPlane && facts.width(value.plane) == 0) {
    return "the recipe has no such plane";
  }
  if (value.kind == ValueKind::kGradient) {
    const int final = facts.final_contributions(value.segment);
    if (value.index < 1 || value.index > final) {
      return fmt::format("contributions are 1 to {}", final);
    }
    const int most = facts.plan.mesh.reductions();
    return value.reduced > most ? fmt::format("gradients are reduced {} times", most) : "";
  }
  if (value.kind == ValueKind::kNormPartial) {
    const int most = facts.plan.mesh.norm_reductions();
    return value.reduced > most ? fmt::format("norm partials are reduced {} times", most) : "";
  }
  const bool of_keys = value.kind == ValueKind::kKeys || value.kind == ValueKind::kKeyGradient;
  const bool of_scores = value.kind == ValueKind::kScores;
  const bool of_norms = value.kind == ValueKind::kProjected ||
                        value.kind == ValueKind::kProjectedGradient ||
                        value.kind == ValueKind::kNormSums;
  const bool of_rows = value.kind == ValueKind::kRows || value.kind == ValueKind::kRowGradient;
  const bool swapped = is_swapped(value.kind);
  const bool of_parts =
      of_keys || of_scores || of_norms || of_rows || swapped || is_branch(value.kind);
  const bool fills = value.kind == ValueKind::kInterior || value.kind == ValueKind::kOperands;
  const bool by_micro_batch = of_parts || fills || value.kind == ValueKind::kActivation ||
                              value.kind == ValueKind::kActivationGradient;
  const model::Parts parts = facts.parts(value.segment);
  const int filling = value.kind == ValueKind::kInterior
                          ? parts.last_filling() - parts.first_filling()
                          : parts.backward_first() - parts.backward_branch();
  if (fills && value.reduced > filling) return "the segment has fewer parts that fill it";
  const bool of_head = parts.shares_scores;
  const bool sums = value.kind == ValueKind::kBranch ? parts.sums_branch || parts.sums_rows
                                                     : parts.sums_branch || of_head;
  const bool is_shared = of_keys     ? parts.shares_keys
                         : of_scores ? parts.shares_scores
                         : of_norms  ? parts.sums_norms
                         : of_rows   ? facts.spec.tensor.ranks > 1
                         : swapped   ? parts.swaps_heads
                                     : sums;
  const bool must = of_keys || of_scores || of_norms || of_rows || swapped;
  if (of_parts && ((must && !is_shared) || value.reduced > (is_shared ? 1 : 0))) {
    return "the segment does not exchange it";
  }
  const int count = facts.micro_batches_of(program);
  if (by_micro_batch && (value.index < 0 || value.index >= count)) {
    return fmt::format("micro-batches are 0 to {}", count - 1);
  }
  return "";
}

// Says what is wrong with the side of an access; empty when nothing is. An access names the first
// place for either side, and no program but load changes what it began with.
std::string flaw_of_side(const Facts& facts, ProgramName program, const Access& access) {
  const TwoSides& sides = facts.plan.sides;
  const int64_t end = sides.begin + sides.bytes;
  const bool twice = access.arena == Arena::kNvme && sides.contain(access.offset) &&
                     access.bytes <= end - access.offset;
  if (access.side > Side::kOther) return "no such side";
  if (!twice) {
    const bool touches = access.arena == Arena::kNvme && access.offset < end + sides.bytes &&
                         sides.begin < access.offset + access.bytes;
    if (touches && sides.bytes > 0) return "not within the first place of what has two sides";
    return access.side == Side::kOther ? "it has one side" : "";
  }
  if (access.value.kind != ValueKind::kPlane) return "only planes have two sides";
  const bool keeps = access.mode == Mode::kRead || program == ProgramName::kLoad;
  return keeps || access.side == Side::kOther ? "" : "writes on the live side";
}

// Checks the place, the size and the byte range of an access. Also used for holdings of the
// boundary state.
bool check_range(const Facts& facts, ProgramName program, int64_t op, const Access& access,
                 Reporter& reporter) {
  if (access.arena > Arena::kControl || access.mode > Mode::kWrite) {
    reporter.add("range", program, op, "no such arena or mode");
    return false;
  }
  const std::string flaw = flaw_of(facts, program, access.value);
  if (!flaw.empty()) {
    reporter.add("value", program, op, fmt::format("{}: {}", describe(facts, access.value), flaw));
    return false;
  }
  const size_t arena = static_cast<size_t>(access.arena);
  const int64_t size = facts.plan.arenas.bytes[arena];
  if (access.offset < 0 || access.bytes <= 0 || access.first < 0 || access.bytes > size ||
      access.offset > size - access.bytes) {
    reporter.add("range", program, op,
                 fmt::format("{}: {} bytes at {} (first {}) of {} arena of {} bytes",
                             describe(facts, access.value), access.bytes, access.offset,
                             access.first, kArenaNames[arena], size));
    return false;
  }
  const std::string side = flaw_of_side(facts, program, access);
  if (!side.empty()) {
    reporter.add("side", program, op,
                 fmt::format("{} at {}: {}", describe(facts, access.value), access.offset, side));
    return false;
  }
  const bool partial = access.value.kind == ValueKind::kNormPartial;
  const bool control = partial || access.value.kind == ValueKind::kNormSum ||
                       access.value.kind == ValueKind::kDecision;
  const bool summed_on_device =
      partial && access.arena == Arena::kDevice && facts.plan.device.discrete;
  if (control != (access.arena == Arena::kControl) && !summed_on_device) {
    reporter.add("arena", program, op,
                 fmt::format("{} in {}", describe(facts, access.value), kArenaNames[arena]));
  }
  const int64_t extent = facts.extent(access.value);
  if (extent >= 0 && (access.bytes > extent || access.first > extent - access.bytes)) {
    reporter.add("range", program, op,
                 fmt::format("{}: bytes {} of {}", describe(facts, access.value),
                             describe(Range{access.first, access.first + access.bytes}), extent));
  }
  const int unit = access.value.kind == ValueKind::kPlane      ? facts.width(access.value.plane)
                   : access.value.kind == ValueKind::kGradient ? 4
                                                               : 1;
  if (access.first % unit != 0 || access.bytes % unit != 0) {
    reporter.add("alignment", program, op,
                 fmt::format("{}: not whole elements", describe(facts, access.value)));
  }
  return true;
}

void check_pages(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const auto accesses = program.accesses_of(program.ops[index]);
  const auto is_on_nvme = [](const Access& access) { return access.arena == Arena::kNvme; };
  if (std::ranges::none_of(accesses, is_on_nvme)) return;
  for (const Access& access : accesses) {
    if (access.arena == Arena::kControl) continue;
    if (access.offset % kPageBytes == 0 && access.bytes % kPageBytes == 0) continue;
    reporter.add("alignment", program.name, index,
                 fmt::format("{}: {} bytes at {} are not whole pages",
                             describe(facts, access.value), access.bytes, access.offset));
  }
}

// Whether an op may overwrite bytes that it reads: it updates a value in place, or an update's
// exp_avg_sq replaces the consumed gradient. The gradient of a segment's output becomes that of the
// stream it continues.
bool may_replace(const Facts& facts, const Op& op, const Value& from, const Value& to) {
  if (op.kind == OpKind::kOptimize && from.kind == ValueKind::kGradient) {
    return to.kind == ValueKind::kPlane && to.plane == Plane::kExpAvgSq;
  }
  if (from.kind != to.kind || from.plane != to.plane) return false;
  if (from.kind == ValueKind::kActivationGradient) {
    const std::vector<int>& inputs = facts.segment(from.segment).inputs;
    return from.segment == to.segment || (!inputs.empty() && inputs.front() == to.segment);
  }
  return from.kind != ValueKind::kActivation && from.kind != ValueKind::kScratch;
}

// Two accesses of one op may overlap only when one replaces the other.
void check_aliases(const Facts& facts, const Program& program, int64_t index,
                   std::vector<const Access*>& sorted, Reporter& reporter) {
  const Op& op = program.ops[index];
  sorted.clear();
  for (const Access& access : program.accesses_of(op)) sorted.push_back(&access);
  std::sort(sorted.begin(), sorted.end(), [](const Access* a, const Access* b) {
    return a->arena != b->arena ? a->arena < b->arena : a->offset < b->offset;
  });
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Access& a = *sorted[i];
    for (size_t j = i + 1; j < sorted.size(); ++j) {
      const Access& b = *sorted[j];
      if (b.arena != a.arena || b.offset >= a.offset + a.bytes) break;
      if (a.mode == Mode::kRead && b.mode == Mode::kRead) continue;
      const bool replaces = a.mode == Mode::kRead ? may_replace(facts, op, a.value, b.value)
                                                  : may_replace(facts, op, b.value, a.value);
      if (a.mode != b.mode && replaces && a.offset - a.first == b.offset - b.first) continue;
      reporter.add("alias", program.name, index,
                   fmt::format("{} and {} overlap at {}", describe(facts, a.value),
                               describe(facts, b.value), b.offset));
      return;
    }
  }
}

bool check_op(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  const auto bad = [&](std::string text) {
    reporter.add("index", program.name, index, std::move(text));
    return false;
  };
  if (static_cast<int>(op.kind) >= kOpKindCount) return bad("no such kind of op");
  if (op.predicate > Predicate::kPending) return bad("no such predicate");
  if (op.access_begin > op.access_end || op.access_end > program.accesses.size()) {
    return bad("accesses beyond the program's");
  }
  if (op.wait_begin > op.wait_end || op.wait_end > program.waits.size()) {
    return bad("waits beyond the program's");
  }
  if (op.segment < -1 || op.segment >= facts.segment_count()) return bad("no such segment");
  const int chunks = static_cast<int>(facts.plan.layout.chunks.size());
  if (op.chunk < -1 || op.chunk_count < 0 || op.chunk > chunks - op.chunk_count) {
    return bad("no such chunks");
  }
  if (op.unit < -1 ||
      (op.unit >= 0 && op.segment >= 0 && facts.segment(op.segment).unit != op.unit)) {
    return bad("its segment is of another unit");
  }
  return true;
}

}  // namespace

bool check_plan_form(const Facts& facts, Reporter& reporter) {
  const Plan& plan = facts.plan;
  const Mesh& mesh = plan.mesh;
  if (plan.micro_batches < 1 || plan.eval_micro_batches < 1 || mesh.world < 1 || mesh.rank < 0 ||
      mesh.replicate < 1 || mesh.tensor < 1 || mesh.pipeline < 1 || mesh.rank >= mesh.world ||
      mesh.world % (int64_t{mesh.replicate} * mesh.tensor * mesh.pipeline) != 0 ||
      mesh.zero_stage < 0 || mesh.zero_stage > 3 || plan.io_depth < 1) {
    reporter.add("layout", ProgramName::kStep, -1, "micro-batches, mesh or depth out of range");
    return false;
  }
  if (mesh.tensor != facts.spec.tensor.ranks) {
    reporter.add("layout", ProgramName::kStep, -1,
                 fmt::format("{} tensor ranks, and the model is a slice for {}", mesh.tensor,
                             facts.spec.tensor.ranks));
    return false;
  }
  if (mesh.context < 1 || mesh.data_ranks() % mesh.context != 0 ||
      !(plan.shape.context == mesh.context_part()) ||
      (mesh.context > 1 && plan.shape.length % 2 != 0)) {
    reporter.add("layout", ProgramName::kStep, -1,
                 fmt::format("{} context ranks, and sequences in {} parts", mesh.context,
                             plan.shape.context.ranks));
    return false;
  }
  if (plan.shape.swaps_heads &&
      !model::can_swap_heads(facts.spec.architecture, plan.shape.context.ranks)) {
    reporter.add("layout", ProgramName::kStep, -1, "ranks swap heads that they do not divide");
    return false;
  }
  if (!check_stage_form(facts, reporter)) return false;
  const TwoSides& sides = plan.sides;
  const int64_t nvme_bytes = plan.arenas.bytes[static_cast<size_t>(Arena::kNvme)];
  if (sides.begin < 0 || sides.bytes < 0 || sides.bytes > nvme_bytes / 2 ||
      sides.begin > nvme_bytes - 2 * sides.bytes) {
    reporter.add("side", ProgramName::kStep, -1,
                 fmt::format("two times {} bytes at {} of an nvme arena of {} bytes", sides.bytes,
                             sides.begin, nvme_bytes));
    return false;
  }
  if (!check_layout(facts, reporter)) return false;
  bool good = true;
  for (const Holding& holding : plan.boundary) {
    const Access access = {Mode::kRead,   holding.arena, holding.offset,
                           holding.bytes, holding.first, holding.value};
    good &= check_range(facts, ProgramName::kStep, -1, access, reporter);
  }
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    if (plan.programs[i].name == static_cast<ProgramName>(i)) continue;
    reporter.add("index", static_cast<ProgramName>(i), -1, "the program has another one's name");
    good = false;
  }
  return good;
}

bool check_program_form(const Facts& facts, const Program& program, Reporter& reporter) {
  bool good = true;
  const int64_t count = static_cast<int64_t>(program.ops.size());
  for (int64_t i = 0; i < count; ++i) good &= check_op(facts, program, i, reporter);
  return good && check_lanes(facts, program, reporter) && check_waits(facts, program, reporter);
}

bool check_accesses(const Facts& facts, const Program& program, int64_t index,
                    std::vector<const Access*>& sorted, Reporter& reporter) {
  bool good = true;
  for (const Access& access : program.accesses_of(program.ops[index])) {
    good &= check_range(facts, program.name, index, access, reporter);
  }
  if (!good) return false;
  check_pages(facts, program, index, reporter);
  check_aliases(facts, program, index, sorted, reporter);
  return true;
}

}  // namespace strata::plan::verifying

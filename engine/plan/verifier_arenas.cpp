// SPDX-License-Identifier: Apache-2.0
// Arenas: budgets, the ledger, the form of the boundary state, and how programs follow each other.
#include <fmt/core.h>

#include <algorithm>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

bool inside(const std::vector<Range>& ranges, int64_t offset, int64_t bytes) {
  auto at = std::upper_bound(ranges.begin(), ranges.end(), offset,
                             [](int64_t value, const Range& range) { return value < range.begin; });
  return at != ranges.begin() && offset + bytes <= std::prev(at)->end;
}

void check_holdings(const Facts& facts, Reporter& reporter) {
  std::array<std::vector<Range>, kArenaCount> held;
  for (const Holding& holding : facts.plan.boundary) {
    const auto bad = [&](const char* what) {
      reporter.add("boundary", ProgramName::kStep, -1,
                   fmt::format("holding of {} {}", describe(facts, holding.value), what));
    };
    held[static_cast<size_t>(holding.arena)].push_back(
        {holding.offset, holding.offset + holding.bytes});
    switch (holding.value.kind) {
      case ValueKind::kPlane:
      case ValueKind::kDecision:
        if (holding.only_if_pending) bad("must not depend on what is pending");
        if (holding.value.generation != Generation::kOld) bad("must have generation +0");
        break;
      case ValueKind::kGradient:
        if (!holding.only_if_pending) bad("is there only while an update is pending");
        if (holding.value.generation != Generation::kOld) bad("must have generation +0");
        break;
      case ValueKind::kCache:
      case ValueKind::kRope:
        if (holding.only_if_pending) bad("must not depend on what is pending");
        break;
      default:
        bad("cannot outlive a program");
    }
  }
  for (std::vector<Range>& ranges : held) {
    if (!join(ranges)) reporter.add("boundary", ProgramName::kStep, -1, "two holdings overlap");
  }
}

}  // namespace

void check_arenas(const Facts& facts, Reporter& reporter) {
  const ArenaLayout& arenas = facts.plan.arenas;
  const TwoSides& sides = facts.plan.sides;
  for (size_t arena = 0; arena < kArenaCount; ++arena) {
    if (arenas.bytes[arena] > arenas.budget[arena]) {
      reporter.add("budget", ProgramName::kStep, -1,
                   fmt::format("arena {} has {} bytes, allowed are {}", arena, arenas.bytes[arena],
                               arenas.budget[arena]));
    }
    const bool twice = static_cast<Arena>(arena) == Arena::kNvme && sides.bytes > 0;
    if (twice && !inside(facts.ledger[arena], sides.begin, 2 * sides.bytes)) {
      reporter.add("ledger", ProgramName::kStep, -1,
                   "a side of extents is in no line of its arena");
    }
    if (facts.ledger_overlaps[arena]) {
      reporter.add("ledger", ProgramName::kStep, -1,
                   fmt::format("lines of arena {} overlap", arena));
    }
  }
  if (!facts.plan.device.discrete && arenas.bytes[static_cast<size_t>(Arena::kDevice)] > 0) {
    reporter.add("budget", ProgramName::kStep, -1, "device and host are one tier here");
  }
  for (const LedgerLine& line : arenas.lines) {
    const bool known = line.arena <= Arena::kControl;
    if (known && line.offset >= 0 && line.bytes >= 0 &&
        line.offset + line.bytes <= arenas.bytes[static_cast<size_t>(line.arena)]) {
      continue;
    }
    reporter.add("ledger", ProgramName::kStep, -1,
                 fmt::format("line \"{}\" leaves its arena", line.purpose));
  }
  check_holdings(facts, reporter);
}

void check_ledger(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  for (const Access& access : program.accesses_of(program.ops[index])) {
    const std::vector<Range>& lines = facts.ledger[static_cast<size_t>(access.arena)];
    if (inside(lines, access.offset, access.bytes)) continue;
    reporter.add("ledger", program.name, index,
                 fmt::format("{} at {} is in no line of arena {}", describe(facts, access.value),
                             access.offset, static_cast<int>(access.arena)));
  }
}

// A program that leaves an update pending may be followed by step or by drain, which must not lose
// the update. Every program begins and ends in the boundary state, so proving each program proves
// every sequence of them.
void check_sequence(const Facts& facts, Reporter& reporter) {
  const auto bad = [&](ProgramName program, const char* text) {
    reporter.add("flags", program, -1, text);
  };
  for (const Program& program : facts.plan.programs) {
    const bool step = program.name == ProgramName::kStep;
    const bool drain = program.name == ProgramName::kDrain;
    if (program.ops.empty()) continue;
    if (program.leaves_pending && !step) bad(program.name, "only step leaves an update pending");
    if (program.accepts_pending && !step && !drain) {
      bad(program.name, "only step and drain apply a pending update");
    }
    if (program.final_generation == Generation::kNew && (!step || facts.plan.update().waits)) {
      bad(program.name, "only an in-backward step ends in generation +1");
    }
  }
  const Program& step = facts.plan.program(ProgramName::kStep);
  const Program& drain = facts.plan.program(ProgramName::kDrain);
  const UpdateRule& rule = facts.plan.update();
  if (step.leaves_pending != rule.waits)
    bad(ProgramName::kStep, "deferred, and only deferred, leaves one");
  if (step.accepts_pending != rule.waits)
    bad(ProgramName::kStep, "deferred, and only deferred, accepts one");
  if (step.final_generation != rule.next) {
    bad(ProgramName::kStep, "ends in another generation than its mode's");
  }
  if (!rule.waits) return;
  if (drain.ops.empty() || !drain.accepts_pending || drain.final_generation != rule.next) {
    bad(ProgramName::kDrain, "does not apply what step leaves pending");
  }
}

}  // namespace strata::plan::verifying

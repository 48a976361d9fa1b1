// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>

#include "engine/plan/plan.h"

// Random bugs outside of programs: in budgets, ledger and boundary state.
namespace strata::plan::mutations::detail {

inline constexpr int kTries = 400;

inline size_t pick(std::mt19937_64& random, size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

// A frozen chunk's generation has no meaning, so a segment that has one is left alone.
inline bool frozen(const Plan& plan, int segment) {
  const shard::Layout& layout = plan.layout;
  for (int c = layout.first_chunk[segment]; c < layout.first_chunk[segment + 1]; ++c) {
    if (layout.chunks[c].frozen) return true;
  }
  return false;
}

inline bool over_budget(Plan& plan, std::mt19937_64& random) {
  const size_t arena = pick(random, kArenaCount);
  plan.arenas.budget[arena] = plan.arenas.bytes[arena] - 1;
  return true;
}

inline bool overlap_lines(Plan& plan, std::mt19937_64& random) {
  std::vector<LedgerLine>& lines = plan.arenas.lines;
  for (int i = 0; i < kTries && lines.size() > 1; ++i) {
    LedgerLine& a = lines[pick(random, lines.size())];
    const LedgerLine& b = lines[pick(random, lines.size())];
    if (&a == &b || a.arena != b.arena || a.bytes == 0 || b.bytes == 0) continue;
    a.offset = b.offset;
    return true;
  }
  return false;
}

inline bool move_holding(Plan& plan, std::mt19937_64& random) {
  for (int i = 0; i < kTries && !plan.boundary.empty(); ++i) {
    Holding& holding = plan.boundary[pick(random, plan.boundary.size())];
    if (holding.value.kind != ValueKind::kPlane || frozen(plan, holding.value.segment)) continue;
    holding.offset += holding.offset >= 4096 ? -4096 : 4096;
    return true;
  }
  return false;
}

}  // namespace strata::plan::mutations::detail

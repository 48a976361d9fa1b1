// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/dependencies.h"

#include <algorithm>

namespace strata::plan {
namespace {

size_t index_of(Lane lane) {
  return static_cast<size_t>(lane);
}

}  // namespace

// Makes `at` the beginning of a cell where a cell contains it.
void Dependencies::split(Cells& cells, int64_t at) {
  auto next = cells.upper_bound(at);
  if (next == cells.begin()) return;
  auto cell = std::prev(next);
  if (cell->first == at || cell->second.end <= at) return;
  Cell right = cell->second;
  cell->second.end = at;
  cells.emplace_hint(next, at, right);
}

// Makes [begin, end) a run of whole cells without gaps, and returns the first of them.
Dependencies::Cells::iterator Dependencies::cover(Cells& cells, int64_t begin, int64_t end) {
  const auto same = cells.lower_bound(begin);  // as a rule ops touch what others touched
  if (same != cells.end() && same->first == begin && same->second.end == end) return same;
  split(cells, begin);
  split(cells, end);
  int64_t at = begin;
  auto cell = cells.lower_bound(begin);
  while (at < end) {
    if (cell == cells.end() || cell->first > at) {
      const int64_t stop = cell == cells.end() ? end : std::min(end, cell->first);
      cell = cells.emplace_hint(cell, at, Cell{stop, -1, 0, {}});
    }
    at = cell->second.end;
    ++cell;
  }
  return cells.find(begin);
}

void Dependencies::require(const Access& access, Clock& need) {
  Cells& cells = cells_[static_cast<size_t>(access.arena)];
  const int64_t end = access.offset + access.bytes;
  for (auto cell = cover(cells, access.offset, end); cell != cells.end() && cell->first < end;
       ++cell) {
    const Cell& at = cell->second;
    if (at.writer_lane >= 0) {
      int32_t& count = need[static_cast<size_t>(at.writer_lane)];
      count = std::max(count, at.writer_count);
    }
    if (access.mode == Mode::kRead) continue;
    for (int lane = 0; lane < kLaneCount; ++lane)
      need[lane] = std::max(need[lane], at.readers[lane]);
  }
}

void Dependencies::record(const Access& access, Lane lane, int32_t count) {
  Cells& cells = cells_[static_cast<size_t>(access.arena)];
  const int64_t end = access.offset + access.bytes;
  if (access.mode == Mode::kRead) {
    for (auto cell = cells.lower_bound(access.offset); cell != cells.end() && cell->first < end;
         ++cell) {
      cell->second.readers[index_of(lane)] = count;
    }
    return;
  }
  auto cell = cells.lower_bound(access.offset);  // begins there: require() covered the range
  cell->second = {end, static_cast<int8_t>(lane), count, {}};
  for (++cell; cell != cells.end() && cell->first < end;) cell = cells.erase(cell);
}

// Drops what the lane's earlier waits imply, and what another needed wait implies.
std::vector<Wait> Dependencies::reduce(Lane lane, const Clock& need) const {
  std::vector<Wait> waits;
  for (int l = 0; l < kLaneCount; ++l) {
    if (need[l] <= issued_[index_of(lane)][l]) continue;
    bool implied = false;
    for (int other = 0; other < kLaneCount && !implied; ++other) {
      if (other == l || need[other] <= issued_[index_of(lane)][other]) continue;
      implied = known_[other][need[other] - 1][l] >= need[l];
    }
    if (implied) continue;
    waits.push_back({static_cast<Lane>(l), need[l] - copy_start_[l]});
  }
  return waits;
}

std::vector<Wait> Dependencies::add(Lane lane, std::span<const Access> accesses) {
  Clock need = {};
  for (const Access& access : accesses) require(access, need);
  std::vector<Wait> waits = reduce(lane, need);

  Clock& issued = issued_[index_of(lane)];
  for (int l = 0; l < kLaneCount; ++l) {
    if (need[l] <= issued[l]) continue;
    const Clock& implied = known_[l][need[l] - 1];
    for (int other = 0; other < kLaneCount; ++other) {
      issued[other] = std::max(issued[other], implied[other]);
    }
    issued[l] = std::max(issued[l], need[l]);
  }
  const int32_t count = static_cast<int32_t>(known_[index_of(lane)].size()) + 1;
  Clock done = issued;
  done[index_of(lane)] = count;
  known_[index_of(lane)].push_back(done);
  if (is_serial(lane)) issued[index_of(lane)] = count;

  for (const Access& access : accesses) {
    if (access.mode == Mode::kRead) record(access, lane, count);
  }
  for (const Access& access : accesses) {
    if (access.mode == Mode::kWrite) record(access, lane, count);
  }
  return waits;
}

void Dependencies::start_copy() {
  for (int l = 0; l < kLaneCount; ++l) copy_start_[l] = static_cast<int32_t>(known_[l].size());
}

}  // namespace strata::plan

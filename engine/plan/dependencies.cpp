// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/dependencies.h"

#include <algorithm>

namespace strata::plan {
namespace {

size_t index_of(Lane lane) {
  return static_cast<size_t>(lane);
}

}  // namespace

void Dependencies::require(const Access& access, Clock& need) const {
  const auto look = [&](int64_t, int64_t, const Users& users) {
    if (users.writer_lane >= 0) {
      int32_t& count = need[static_cast<size_t>(users.writer_lane)];
      count = std::max(count, users.writer_count);
    }
    if (access.mode == Mode::kRead) return;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      need[lane] = std::max(need[lane], users.readers[lane]);
    }
  };
  users_[static_cast<size_t>(access.arena)].each(access.offset, access.offset + access.bytes, look);
}

void Dependencies::record(const Access& access, Lane lane, int32_t count) {
  IntervalMap<Users>& users = users_[static_cast<size_t>(access.arena)];
  const int64_t end = access.offset + access.bytes;
  if (access.mode == Mode::kWrite) {
    users.assign(access.offset, end, {static_cast<int32_t>(lane), count, {}});
  } else {
    users.update(access.offset, end, [&](Users& at) { at.readers[index_of(lane)] = count; });
  }
}

// Drops waits that the lane's earlier waits, or other needed waits, imply.
void Dependencies::reduce(Lane lane, const Clock& need, std::vector<Wait>& waits) const {
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
}

void Dependencies::add(Lane lane, std::span<const Access> accesses, std::vector<Wait>& waits) {
  Clock need = {};
  for (const Access& access : accesses) require(access, need);
  reduce(lane, need, waits);

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
}

void Dependencies::clear() {
  for (IntervalMap<Users>& users : users_) users.clear();
  for (std::vector<Clock>& known : known_) known.clear();
  issued_ = {};
  copy_start_ = {};
}

void Dependencies::start_copy() {
  for (int l = 0; l < kLaneCount; ++l) copy_start_[l] = static_cast<int32_t>(known_[l].size());
}

}  // namespace strata::plan

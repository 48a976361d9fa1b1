// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/dependencies.h"

#include <algorithm>

namespace strata::plan {
namespace {

size_t index_of(Lane lane) {
  return static_cast<size_t>(lane);
}

// Calls f(arena, begin, end) for the bytes that are accessed in `mode`. Accesses in a row to bytes
// in a row are one range.
template <class F>
void each_range(std::span<const Access> accesses, Mode mode, F f) {
  for (size_t i = 0; i < accesses.size();) {
    const Access& first = accesses[i++];
    if (first.mode != mode) continue;
    int64_t end = first.offset + first.bytes;
    while (i < accesses.size() && accesses[i].mode == mode && accesses[i].arena == first.arena &&
           accesses[i].offset == end) {
      end += accesses[i++].bytes;
    }
    f(static_cast<size_t>(first.arena), first.offset, end);
  }
}

}  // namespace

// Records the accesses of op `count` of `lane`, and returns how many ops of each lane must have
// completed before it. Writes come first: a byte that the op also reads counts as written, which
// waits for all that a read waits for.
Dependencies::Clock Dependencies::touch(std::span<const Access> accesses, Lane lane,
                                        int32_t count) {
  Clock need = {};
  const int32_t own_lane = static_cast<int32_t>(lane);
  const auto is_own = [&](const Users& users) {
    return users.writer_lane == own_lane && users.writer_count == count;
  };
  const auto follow = [&](const Users& users) {
    if (users.writer_lane < 0) return;
    int32_t& before = need[static_cast<size_t>(users.writer_lane)];
    before = std::max(before, users.writer_count);
  };
  each_range(accesses, Mode::kWrite, [&](size_t arena, int64_t begin, int64_t end) {
    users_[arena].assign(begin, end, {own_lane, count, {}}, [&](int64_t, const Users& users) {
      follow(users);
      for (int l = 0; l < kLaneCount; ++l) need[l] = std::max(need[l], users.readers[l]);
    });
  });
  each_range(accesses, Mode::kRead, [&](size_t arena, int64_t begin, int64_t end) {
    users_[arena].update(begin, end, [&](int64_t, Users& users) {
      if (is_own(users)) return;
      follow(users);
      users.readers[index_of(lane)] = count;
    });
  });
  return need;
}

void Dependencies::add(Lane lane, std::span<const Access> accesses, std::vector<Wait>& waits) {
  const int32_t count = static_cast<int32_t>(known_[index_of(lane)].size()) + 1;
  const Clock need = touch(accesses, lane, count);

  // Waits that the lane's earlier waits, or other needed waits, imply are dropped.
  Clock& issued = issued_[index_of(lane)];
  std::array<int, kLaneCount> wanted;
  size_t count_wanted = 0;
  for (int l = 0; l < kLaneCount; ++l) {
    if (need[l] > issued[l]) wanted[count_wanted++] = l;
  }
  const std::span<const int> lanes(wanted.data(), count_wanted);
  for (const int l : lanes) {
    const bool implied = std::any_of(lanes.begin(), lanes.end(), [&](int other) {
      return other != l && known_[other][need[other] - 1][l] >= need[l];
    });
    if (!implied) waits.push_back({static_cast<Lane>(l), need[l] - copy_start_[l]});
  }
  for (const int l : lanes) {
    const Clock& implied = known_[l][need[l] - 1];
    for (int other = 0; other < kLaneCount; ++other) {
      issued[other] = std::max(issued[other], implied[other]);
    }
  }
  Clock done = issued;
  done[index_of(lane)] = count;
  known_[index_of(lane)].push_back(done);
  if (is_serial(lane)) issued[index_of(lane)] = count;
}

void Dependencies::clear(const std::array<size_t, kLaneCount>& expected) {
  for (IntervalMap<Users>& users : users_) users.clear();
  for (int l = 0; l < kLaneCount; ++l) {
    known_[l].clear();
    known_[l].reserve(expected[l]);
  }
  issued_ = {};
  copy_start_ = {};
}

void Dependencies::start_copy() {
  for (int l = 0; l < kLaneCount; ++l) copy_start_[l] = static_cast<int32_t>(known_[l].size());
}

}  // namespace strata::plan

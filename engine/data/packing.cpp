// SPDX-License-Identifier: Apache-2.0
#include "engine/data/packing.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace strata::data {
namespace {

// Rows that have room, by how much: the first begun of those with the least room that suffices.
class OpenRows {
 public:
  explicit OpenRows(int64_t row_length) : by_room_(static_cast<size_t>(row_length) + 1) {}

  // -1 when no row has the room.
  int64_t take(int64_t wanted) {
    const auto room = rooms_.lower_bound(wanted);
    if (room == rooms_.end()) return -1;
    room_ = *room;
    auto& rows = by_room_[static_cast<size_t>(room_)];
    const int64_t row = rows.top();
    rows.pop();
    if (rows.empty()) rooms_.erase(room);
    return row;
  }
  int64_t room() const { return room_; }  // of the row taken last

  void put(int64_t row, int64_t room) {
    if (room == 0) return;
    by_room_[static_cast<size_t>(room)].push(row);
    rooms_.insert(room);
  }

 private:
  using FirstBegun = std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>>;

  std::vector<FirstBegun> by_room_;
  std::set<int64_t> rooms_;  // that some row has
  int64_t room_ = 0;
};

// The row of each record.
std::vector<int64_t> rows_of(std::span<const int64_t> lengths, int64_t row_length) {
  std::vector<int64_t> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  OpenRows open(row_length);
  std::vector<int64_t> rows(lengths.size());
  int64_t count = 0;
  for (const int64_t record : longest_first) {
    const int64_t length = lengths[static_cast<size_t>(record)];
    STRATA_CHECK(length >= 1 && length <= row_length);
    int64_t row = open.take(length);
    const int64_t room = row < 0 ? row_length : open.room();
    if (row < 0) row = count++;
    rows[static_cast<size_t>(record)] = row;
    open.put(row, room - length);
  }
  return rows;
}

}  // namespace

Packing pack_records(std::span<const int64_t> lengths, int64_t row_length) {
  std::vector<int64_t> rows = rows_of(lengths, row_length);
  // Number rows by their first record.
  std::vector<int64_t> number(lengths.size(), -1);
  int64_t count = 0;
  for (int64_t& row : rows) {
    int64_t& known = number[static_cast<size_t>(row)];
    if (known < 0) known = count++;
    row = known;
  }
  Packing packing;
  packing.row_starts.assign(static_cast<size_t>(count) + 1, 0);
  for (const int64_t row : rows) ++packing.row_starts[static_cast<size_t>(row) + 1];
  std::partial_sum(packing.row_starts.begin(), packing.row_starts.end(),
                   packing.row_starts.begin());
  std::vector<int64_t> next(packing.row_starts.begin(), packing.row_starts.end() - 1);
  packing.order.resize(lengths.size());
  for (size_t record = 0; record < rows.size(); ++record) {
    int64_t& place = next[static_cast<size_t>(rows[record])];
    packing.order[static_cast<size_t>(place++)] = static_cast<int64_t>(record);
  }
  return packing;
}

std::vector<int64_t> record_lengths(const TokenSequence& tokens, std::span<const int64_t> starts,
                                    int64_t row_length) {
  std::vector<int64_t> lengths;
  lengths.reserve(starts.size());
  for (size_t k = 0; k < starts.size(); ++k) {
    const int64_t end = k + 1 < starts.size() ? starts[k + 1] : tokens.count();
    lengths.push_back(std::min(row_length, end - starts[k] - 1));
  }
  return lengths;
}

}  // namespace strata::data

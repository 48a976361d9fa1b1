// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace strata {

// Maps addresses from 0 up to values of T; T{} where nothing was assigned. Equal neighbours are
// joined when one of them is assigned. An operation takes constant time plus time for the intervals
// that it touches, as long as intervals are spread about evenly. Holds at most 2^32 intervals.
//
// The intervals are cells in one vector, linked in order of address. A table has, for every 2^shift
// addresses, the cell that contains the first of them: a search begins there.
template <class T>
class IntervalMap {
 public:
  // Resets every address to T{} and keeps the memory.
  void clear() {
    cells_.assign({{kEnd, kEnd, 1, 1, T{}}, {0, kEnd, kNobody, kNobody, T{}}});
    free_.clear();
    table_.assign(1, 1);
    shift_ = 0;
    covered_ = 1;
  }

  // Sets [begin, end) to `value`.
  void assign(int64_t begin, int64_t end, const T& value) {
    assign(begin, end, value, [](int64_t, const T&) {});
  }

  // Sets [begin, end) to `value` and calls f(begin, const T&) for what its parts were, in order.
  template <class F>
  void assign(int64_t begin, int64_t end, const T& value, F f) {
    const uint32_t first = cut_out(begin, end);
    f(begin, std::as_const(cells_[first].value));
    if (cells_[first].end < end) {
      uint32_t next = cells_[first].next;
      while (cells_[next].begin < end) {
        f(cells_[next].begin, std::as_const(cells_[next].value));
        next = free(next);
      }
      cells_[first].end = end;
      link(first, next);
      point(begin, end, first);
    }
    cells_[first].value = value;
    const uint32_t before = cells_[first].before;
    join(first);
    join(before);
  }

  // Calls f(begin, end, const T&) for all of [begin, end) in order.
  template <class F>
  void each(int64_t begin, int64_t end, F f) const {
    for (uint32_t id = find(begin); begin < end; id = cells_[id].next) {
      const Cell& cell = cells_[id];
      f(begin, std::min(cell.end, end), cell.value);
      begin = cell.end;
    }
  }

  // Calls f(begin, T&) for all intervals of [begin, end), after a split of those that cross its
  // ends.
  template <class F>
  void update(int64_t begin, int64_t end, F f) {
    for (uint32_t id = cut_out(begin, end); begin < end; id = cells_[id].next) {
      f(begin, cells_[id].value);
      begin = cells_[id].end;
    }
  }

 private:
  struct Cell {
    int64_t begin;
    int64_t end;
    uint32_t before;
    uint32_t next;
    T value;
  };

  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  static constexpr uint32_t kNobody = 0;  // sentinel: before the first cell and behind the last

  uint32_t find(int64_t address) const {
    const size_t place = static_cast<size_t>(address >> shift_);
    uint32_t id = table_[std::min(place, table_.size() - 1)];
    while (cells_[id].end <= address) id = cells_[id].next;
    return id;
  }

  // Splits cells so that [begin, end) is a run of whole cells, and returns the first.
  uint32_t cut_out(int64_t begin, int64_t end) {
    if (end > covered_) tabulate(std::max(2 * covered_, end));
    if (cells_.size() - free_.size() > 2 * table_.size()) tabulate(covered_);
    uint32_t first = find(begin);
    if (cells_[first].begin < begin) first = cut(first, begin);
    uint32_t last = first;
    while (cells_[last].end < end) last = cells_[last].next;
    if (cells_[last].end == end) return first;
    const uint32_t behind = cut(last, end);
    return last == first ? cells_[behind].before : first;
  }

  // Splits a cell at `at` and returns the second half. The new cell is the smaller half, so that
  // less of the table changes.
  uint32_t cut(uint32_t id, int64_t at) {
    uint32_t other = static_cast<uint32_t>(cells_.size());
    if (free_.empty()) {
      cells_.push_back(cells_[id]);
    } else {
      other = free_.back();
      free_.pop_back();
      cells_[other] = cells_[id];
    }
    Cell& old = cells_[id];
    if (old.end - at <= at - old.begin) {
      link(other, old.next);
      link(id, other);
      old.end = cells_[other].begin = at;
      point(at, cells_[other].end, other);
      return other;
    }
    link(old.before, other);
    link(other, id);
    old.begin = cells_[other].end = at;
    point(cells_[other].begin, at, other);
    return id;
  }

  // Joins a cell with the one behind it when their values are equal.
  void join(uint32_t id) {
    const uint32_t next = cells_[id].next;
    if (id == kNobody || next == kNobody || !(cells_[id].value == cells_[next].value)) return;
    Cell& left = cells_[id];
    Cell& right = cells_[next];
    if (right.end - right.begin <= left.end - left.begin) {
      left.end = right.end;
      point(right.begin, right.end, id);
      link(id, free(next));
    } else {
      right.begin = left.begin;
      point(left.begin, left.end, next);
      free_.push_back(id);
      link(left.before, next);
    }
  }

  void link(uint32_t id, uint32_t next) {
    cells_[id].next = next;
    cells_[next].before = id;
  }

  // Frees a cell and returns the one behind it.
  uint32_t free(uint32_t id) {
    free_.push_back(id);
    return cells_[id].next;
  }

  // Makes searches for [begin, end) start at this cell.
  void point(int64_t begin, int64_t end, uint32_t id) {
    const auto from = static_cast<size_t>((begin - 1) >> shift_) + 1;
    const size_t to =
        end >= covered_ ? table_.size() : static_cast<size_t>((end - 1) >> shift_) + 1;
    for (size_t place = from; place < to; ++place) table_[place] = id;
  }

  // Rebuilds the table with about two places a cell, for addresses up to `covered` at least.
  void tabulate(int64_t covered) {
    const size_t places = std::bit_ceil(2 * (cells_.size() - free_.size()));
    shift_ = 0;
    while (static_cast<uint64_t>(covered - 1) >> shift_ >= places) ++shift_;
    table_.assign(static_cast<size_t>((covered - 1) >> shift_) + 1, 0);
    covered_ = static_cast<int64_t>(table_.size()) << shift_;
    uint32_t id = cells_[kNobody].next;
    for (size_t place = 0; place < table_.size(); ++place) {
      while (cells_[id].end <= static_cast<int64_t>(place) << shift_) id = cells_[id].next;
      table_[place] = id;
    }
  }

  std::vector<Cell> cells_ = {{kEnd, kEnd, 1, 1, T{}}, {0, kEnd, kNobody, kNobody, T{}}};
  std::vector<uint32_t> free_;  // unused cells
  std::vector<uint32_t> table_ = {1};
  int shift_ = 0;
  int64_t covered_ = 1;  // addresses below this have places of their own in the table
};

}  // namespace strata

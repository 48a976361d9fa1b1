// SPDX-License-Identifier: Apache-2.0
#include "engine/data/packing.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::data {
namespace {

constexpr int64_t kWindowMax = 1 << 19;  // records that are put in order at a time
constexpr int64_t kWindowMin = 1 << 12;
constexpr int64_t kWindowBytes = 40;  // for each: 8, and 2 entries of Places

// Rows by the number in which they were begun, `begin` .. `end` - 1, that hold records of the same
// lengths.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t records = 0;  // in each
};

// Records of one length, from the `first` of that length on, which go by `each` to the rows from
// `row` on.
struct Placed {
  int64_t first = 0;
  int64_t row = 0;
  int64_t each = 1;
};

// Which row each record goes to, known by the number of records of each length alone: records of
// one length are as good as each other, so rows are filled many at a time. A row is only filled
// while it is the fullest with room, so it takes as many records of a length as fit in it. Rows are
// cut in two where a length ends, twice at most, so that this stays small for any number of
// records.
class Filling {
 public:
  Filling(const std::vector<int64_t>& counts, int64_t row_length)
      : row_length_(row_length), placed_(counts.size()) {
    for (int64_t length = row_length; length > 0; --length) {
      place(length, counts[static_cast<size_t>(length)]);
    }
    for (const auto& [room, of_room] : open_) {
      for (const auto& [begin, rows] : of_room) rows_.push_back(rows);
    }
    std::sort(rows_.begin(), rows_.end(),
              [](const Rows& a, const Rows& b) { return a.begin < b.begin; });
  }

  int64_t row_count() const { return row_count_; }
  // The row of the record that is the `place`-th of its length.
  int64_t row_of(int64_t length, int64_t place) const {
    const std::vector<Placed>& placed = placed_[static_cast<size_t>(length)];
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), place,
                         [](int64_t value, const Placed& each) { return value < each.first; });
    const Placed& found = *std::prev(after);
    return found.row + (place - found.first) / found.each;
  }
  // How many records a row has.
  int64_t records_of(int64_t row) const {
    const auto after =
        std::upper_bound(rows_.begin(), rows_.end(), row,
                         [](int64_t value, const Rows& each) { return value < each.begin; });
    return std::prev(after)->records;
  }

 private:
  using ByBegin = std::map<int64_t, Rows>;

  // Takes the rows to fill next: of those with the least room that suffices, the first begun.
  Rows take(int64_t length, int64_t records_left, int64_t& room) {
    const auto found = open_.lower_bound(length);
    if (found == open_.end()) {
      room = row_length_;
      const int64_t begin = row_count_;
      row_count_ += ceil_div(records_left, room / length);
      return {begin, row_count_, 0};
    }
    room = found->first;
    const Rows rows = found->second.begin()->second;
    found->second.erase(found->second.begin());
    if (found->second.empty()) open_.erase(found);
    return rows;
  }

  void put(const Rows& rows, int64_t room) {
    if (rows.begin < rows.end) open_[room].emplace(rows.begin, rows);
  }

  void place(int64_t length, int64_t count) {
    for (int64_t done = 0; done < count;) {
      int64_t room = 0;
      const Rows rows = take(length, count - done, room);
      const int64_t each = room / length;
      placed_[static_cast<size_t>(length)].push_back({done, rows.begin, each});
      const int64_t filled = std::min(rows.end - rows.begin, (count - done) / each);
      const int64_t middle = rows.begin + filled;
      put({rows.begin, middle, rows.records + each}, room - each * length);
      done += filled * each;
      if (middle == rows.end) continue;
      const int64_t rest = count - done;  // fewer than fill another row
      put({middle, middle + 1, rows.records + rest}, room - rest * length);
      put({middle + 1, rows.end, rows.records}, room);
      done = count;
    }
  }

  const int64_t row_length_;
  int64_t row_count_ = 0;
  std::map<int64_t, ByBegin> open_;          // by the room that is left, which may be none
  std::vector<std::vector<Placed>> placed_;  // by length
  std::vector<Rows> rows_;
};

// Where records of a row go in a window, by the row: a table with open addressing.
class Places {
 public:
  explicit Places(int64_t rows_max) : entries_(std::bit_ceil(static_cast<size_t>(2 * rows_max))) {}
  // The place of the next record of a row; null when the row is not in the window.
  int64_t* find(int64_t row) {
    Entry& entry = entry_of(row);
    return entry.row == row ? &entry.next : nullptr;
  }
  void insert(int64_t row, int64_t next) { entry_of(row) = {row, next}; }
  void clear() { std::fill(entries_.begin(), entries_.end(), Entry()); }

 private:
  struct Entry {
    int64_t row = -1;
    int64_t next = 0;
  };
  Entry& entry_of(int64_t row) {
    size_t at = static_cast<size_t>(row) * 0x9E3779B97F4A7C15u >> 32 & (entries_.size() - 1);
    while (entries_[at].row != -1 && entries_[at].row != row) at = (at + 1) % entries_.size();
    return entries_[at];
  }
  std::vector<Entry> entries_;
};

// Puts rows in the order of their first records, a window of rows at a time. Each window is one
// pass over the records from its first row's first record on.
class Ordering {
 public:
  Ordering(const Filling& filling, int64_t window, Packing& packing)
      : filling_(filling),
        packing_(packing),
        done_(static_cast<size_t>(filling.row_count())),
        limit_(window),
        window_(static_cast<size_t>(limit_)),
        places_(limit_) {}

  // Returns the record with which the next window begins, and counts in `places` the records of
  // each length before it.
  int64_t pass(int64_t first, RecordLengths lengths, std::vector<int64_t>& places) {
    places_.clear();
    std::vector<int64_t> place = places;
    int64_t taken = 0, filled = 0, next_first = -1, record = first;
    for (std::optional<int64_t> length; (length = lengths.next()); ++record) {
      int64_t& at = place[static_cast<size_t>(*length)];
      const int64_t row = filling_.row_of(*length, at);
      int64_t* next = places_.find(row);
      if (next == nullptr && !done_[static_cast<size_t>(row)] && next_first < 0) {
        const int64_t records = filling_.records_of(row);
        if (taken > 0 && taken + records > limit_) {
          next_first = record;
          places = place;
        } else {
          next = begin_row(row, records, taken);
        }
      }
      if (next != nullptr) {
        window_[static_cast<size_t>((*next)++)] = record;
        ++filled;
      }
      ++at;
      if (next_first >= 0 && filled == taken) break;
    }
    STRATA_CHECK(filled == taken);
    packing_.order.append(std::span(window_).first(static_cast<size_t>(taken)));
    return next_first >= 0 ? next_first : record;
  }

 private:
  int64_t* begin_row(int64_t row, int64_t records, int64_t& taken) {
    if (taken + records > std::ssize(window_)) {  // one row has more than a window
      window_.resize(static_cast<size_t>(records));
    }
    done_[static_cast<size_t>(row)] = true;
    places_.insert(row, taken);
    taken += records;
    packing_.row_starts.push_back(packing_.order.size() + taken);
    return places_.find(row);
  }

  const Filling& filling_;
  Packing& packing_;
  std::vector<bool> done_;
  const int64_t limit_;  // records of a window, unless one row has more
  std::vector<int64_t> window_;
  Places places_;
};

}  // namespace

std::optional<int64_t> RecordLengths::next() {
  if (!start_) return std::nullopt;
  const std::optional<int64_t> end = starts_.next();
  const int64_t length = std::min(row_length_, end.value_or(token_count_) - *start_ - 1);
  start_ = end;
  return length;
}

int64_t packing_window(int64_t room_bytes) {
  int64_t window = kWindowMax;
  while (window > kWindowMin && window * kWindowBytes > room_bytes) window /= 2;
  return window;
}

void pack_records(const Numbers& starts, int64_t token_count, int64_t row_length, Packing& packing,
                  int64_t window) {
  STRATA_CHECK(window > 0);
  std::vector<int64_t> counts(static_cast<size_t>(row_length) + 1);
  RecordLengths all(starts, token_count, row_length);
  while (const std::optional<int64_t> length = all.next()) {
    STRATA_CHECK(*length >= 1 && *length <= row_length);
    ++counts[static_cast<size_t>(*length)];
  }
  packing.row_starts.push_back(0);
  const Filling filling(counts, row_length);
  Ordering ordering(filling, std::min(starts.size(), window), packing);
  std::vector<int64_t> places(counts.size());
  for (int64_t first = 0; first < starts.size();) {
    first = ordering.pass(first, {starts, token_count, row_length, first}, places);
  }
}

}  // namespace strata::data

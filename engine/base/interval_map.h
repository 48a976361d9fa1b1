// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace strata::plan {

// Disjoint half-open intervals of addresses, each with a T. Neighbours that touch and are equal are
// joined when one of them is assigned. All operations take time logarithmic in the intervals, plus
// the intervals that they touch.
template <class T>
class IntervalMap {
 public:
  // Sets [begin, end) to `value`, whatever it was.
  void assign(int64_t begin, int64_t end, const T& value) {
    auto at = clear(begin, end);
    if (at != nodes_.end() && at->first == end && at->second.value == value) {
      end = at->second.end;
      at = nodes_.erase(at);
    }
    if (at != nodes_.begin()) {
      auto before = std::prev(at);
      if (before->second.end == begin && before->second.value == value) {
        before->second.end = end;
        return;
      }
    }
    nodes_.emplace_hint(at, begin, Node{end, value});
  }

  void erase(int64_t begin, int64_t end) { clear(begin, end); }

  // Calls f(begin, end, const T*) for all of [begin, end) in order; null where nothing is assigned.
  template <class F>
  void each(int64_t begin, int64_t end, F f) const {
    auto at = nodes_.upper_bound(begin);
    if (at != nodes_.begin() && std::prev(at)->second.end > begin) --at;
    int64_t next = begin;
    for (; at != nodes_.end() && at->first < end; ++at) {
      if (at->first > next) f(next, at->first, static_cast<const T*>(nullptr));
      const int64_t low = at->first > next ? at->first : next;
      const int64_t high = at->second.end < end ? at->second.end : end;
      f(low, high, &at->second.value);
      next = high;
    }
    if (next < end) f(next, end, static_cast<const T*>(nullptr));
  }

  // Calls f(T&) for all of [begin, end), where gaps first become intervals with T{}.
  template <class F>
  void update(int64_t begin, int64_t end, F f) {
    auto at = split(begin);
    split(end);
    int64_t next = begin;
    while (next < end) {
      if (at == nodes_.end() || at->first > next) {
        const int64_t gap_end = at == nodes_.end() || at->first > end ? end : at->first;
        at = nodes_.emplace_hint(at, next, Node{gap_end, T{}});
      }
      f(at->second.value);
      next = at->second.end;
      ++at;
    }
  }

  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    int64_t end;
    T value;
  };
  using Nodes = std::map<int64_t, Node>;

  // Makes `point` a border; returns the first interval that begins at or after it.
  typename Nodes::iterator split(int64_t point) {
    auto at = nodes_.lower_bound(point);
    if (at == nodes_.begin()) return at;
    auto before = std::prev(at);
    if (before->second.end <= point) return at;
    Node rest{before->second.end, before->second.value};
    before->second.end = point;
    return nodes_.emplace_hint(at, point, std::move(rest));
  }

  // Removes [begin, end); returns the first interval behind it.
  typename Nodes::iterator clear(int64_t begin, int64_t end) {
    split(end);
    auto at = split(begin);
    while (at != nodes_.end() && at->first < end) at = nodes_.erase(at);
    return at;
  }

  Nodes nodes_;
};

}  // namespace strata::plan

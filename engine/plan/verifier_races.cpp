// SPDX-License-Identifier: Apache-2.0
// Races: checks that lanes and waits order any two ops that touch the same byte, when one of them
// writes it. Both sides of an extent count as one byte, so the order holds whichever is live.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/base/interval_map.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

// By lane: how many of its ops are known to have completed. Lanes publish in plan order, so these
// ops are a prefix, and op k of lane l is known to have completed when clock[l] > k.
using Clock = std::array<int32_t, kLaneCount>;

void raise(Clock& clock, const Clock& other) {
  for (int lane = 0; lane < kLaneCount; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

// The last op that wrote an address and, for each lane, one more than the last op that has read it
// since. An op that follows the last reader of a lane follows all readers of that lane.
struct Users {
  int32_t writer_lane = -1;
  int32_t writer = 0;
  std::array<int32_t, kLaneCount> readers = {};
  bool operator==(const Users&) const = default;
};

class Race {
 public:
  Race(const Facts& facts, const Program& program, Reporter& reporter)
      : facts_(facts), program_(program), reporter_(reporter) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      lane_ops_[lane] = static_cast<int32_t>(program.lanes[lane].size());
    }
  }

  void run(int copies) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      issues_[lane].reserve(static_cast<size_t>(lane_ops_[lane]) * copies);
    }
    for (int copy = 0; copy < copies; ++copy) {
      for (size_t i = 0; i < program_.ops.size() && !reporter_.full(); ++i) {
        step(copy, static_cast<int64_t>(i));
      }
    }
  }

 private:
  // What is known when the op is issued. An op is issued after the previous op of its lane, so it
  // inherits that op's knowledge; on a serial lane the previous op has also completed. This also
  // holds for an op that a predicate skips, because it still waits and counts.
  Clock issue(int copy, const Op& op) {
    const int lane = static_cast<int>(op.lane);
    std::vector<Clock>& issued = issues_[lane];
    Clock clock = issued.empty() ? Clock{} : issued.back();
    if (is_serial(op.lane)) clock[lane] = static_cast<int32_t>(issued.size());
    for (const Wait& wait : program_.waits_of(op)) {
      const int other = static_cast<int>(wait.lane);
      const int32_t before = (wait.count > 0 ? copy : copy - 1) * lane_ops_[other];
      const int32_t count =
          wait.count > 0 ? before + wait.count : before + lane_ops_[other] + wait.count;
      if (count <= 0 || (copy == 0 && wait.count <= 0)) continue;
      raise(clock, issues_[other][count - 1]);
      clock[other] = std::max(clock[other], count);
    }
    issued.push_back(clock);
    return clock;
  }

  // Writes come first: a byte that the op also reads counts as written, and the rule for a write is
  // the stricter one.
  void step(int copy, int64_t index) {
    const Op& op = program_.ops[index];
    const Clock clock = issue(copy, op);
    const std::span<const Access> accesses = program_.accesses_of(op);
    for (const Mode mode : {Mode::kWrite, Mode::kRead}) {
      for (size_t i = 0; i < accesses.size();) {
        const Access& first = accesses[i++];
        if (first.mode != mode) continue;
        // Accesses in a row to bytes in a row are one range.
        int64_t end = first.offset + first.bytes;
        while (i < accesses.size() && accesses[i].mode == mode &&
               accesses[i].arena == first.arena && accesses[i].offset == end) {
          end += accesses[i++].bytes;
        }
        touch(copy, index, first, end, clock);
      }
    }
  }

  void touch(int copy, int64_t index, const Access& first, int64_t end, const Clock& clock) {
    const int lane = static_cast<int>(program_.ops[index].lane);
    const int32_t self = static_cast<int32_t>(issues_[lane].size()) - 1;
    bool reported = false;
    const auto is_other = [&](int64_t begin, const Users& users) {
      if (users.writer_lane == lane && users.writer == self) return false;
      if (!reported) reported = !check(copy, index, first, begin, users, clock);
      return true;
    };
    IntervalMap<Users>& memory = memory_[static_cast<size_t>(first.arena)];
    if (first.mode == Mode::kWrite) {
      memory.assign(first.offset, end, Users{lane, self, {}}, is_other);
    } else {
      memory.update(first.offset, end, [&](int64_t begin, Users& users) {
        if (is_other(begin, users)) users.readers[lane] = self + 1;
      });
    }
  }

  // Whether an access may follow these users.
  bool check(int copy, int64_t index, const Access& access, int64_t begin, const Users& users,
             const Clock& clock) {
    if (users.writer_lane >= 0 && clock[users.writer_lane] <= users.writer) {
      report(copy, index, access, begin, users.writer_lane, users.writer, "write");
      return false;
    }
    for (int lane = 0; access.mode == Mode::kWrite && lane < kLaneCount; ++lane) {
      if (clock[lane] >= users.readers[lane]) continue;
      report(copy, index, access, begin, lane, users.readers[lane] - 1, "read");
      return false;
    }
    return true;
  }

  // `access` is the first of its range.
  void report(int copy, int64_t index, const Access& access, int64_t address, int lane,
              int32_t other, const char* what) {
    const Access* at = &access;
    while (at->offset + at->bytes <= address) ++at;
    const int32_t place = other % lane_ops_[lane];
    const uint32_t other_op = program_.lanes[lane][place];
    reporter_.add(
        "race", program_.name, index,
        fmt::format("{} {} at {} while op {} ({}, lane {} count {}{}) may still {} it",
                    at->mode == Mode::kRead ? "reads" : "writes", describe(facts_, at->value),
                    address, other_op, contract_of(program_.ops[other_op].kind).name, lane,
                    place + 1, copy > 0 && other < lane_ops_[lane] ? ", step before" : "", what));
  }

  const Facts& facts_;
  const Program& program_;
  Reporter& reporter_;
  std::array<int32_t, kLaneCount> lane_ops_ = {};
  std::array<std::vector<Clock>, kLaneCount> issues_;
  std::array<IntervalMap<Users>, kArenaCount> memory_;
};

}  // namespace

void check_races(const Facts& facts, const Program& program, int copies, Reporter& reporter) {
  Race(facts, program, reporter).run(copies);
}

}  // namespace strata::plan::verifying

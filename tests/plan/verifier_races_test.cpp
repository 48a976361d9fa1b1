// SPDX-License-Identifier: Apache-2.0
// On random programs the race check says what a comparison of all pairs of ops says; and the rules
// of lanes and waits, one small program each.
#include <gtest/gtest.h>

#include <random>

#include "engine/plan/verifier_parts.h"
#include "tests/support/seeds.h"

namespace strata::plan {
namespace {

struct Item {
  Lane lane;
  std::vector<Wait> waits;
  std::vector<Access> accesses;
};

Access touch(Mode mode, int64_t offset, int64_t bytes) {
  return {mode, Arena::kHost, offset, bytes, 0, Value{}};
}

Program program_of(const std::vector<Item>& items) {
  Program program;
  program.name = ProgramName::kStep;
  for (const Item& item : items) {
    Op op;
    op.lane = item.lane;
    op.wait_begin = static_cast<uint32_t>(program.waits.size());
    op.access_begin = static_cast<uint32_t>(program.accesses.size());
    program.waits.insert(program.waits.end(), item.waits.begin(), item.waits.end());
    program.accesses.insert(program.accesses.end(), item.accesses.begin(), item.accesses.end());
    op.wait_end = static_cast<uint32_t>(program.waits.size());
    op.access_end = static_cast<uint32_t>(program.accesses.size());
    const uint32_t index = static_cast<uint32_t>(program.ops.size());
    program.lanes[static_cast<size_t>(item.lane)].push_back(index);
    program.ops.push_back(op);
  }
  return program;
}

bool races(const Program& program, int copies) {
  const Plan plan;
  const model::ModelSpec spec;
  const verifying::Facts facts(plan, spec);
  VerifyReport report;
  verifying::Reporter reporter(report);
  verifying::check_races(facts, program, copies, reporter);
  return !report.ok();
}

// All ops of all copies as a graph: an edge from the completion of one to the issue of another, or
// from issue to issue; then reachability, pair by pair.
class PairByPair {
 public:
  PairByPair(const Program& program, int copies) : program_(program), n_(program.ops.size()) {
    const size_t nodes = 2 * n_ * copies;
    reach_.assign(nodes, std::vector<bool>(nodes, false));
    for (int copy = 0; copy < copies; ++copy) {
      for (size_t i = 0; i < n_; ++i) link(copy, i);
    }
    for (size_t k = 0; k < nodes; ++k) {
      for (size_t a = 0; a < nodes; ++a) {
        for (size_t b = 0; reach_[a][k] && b < nodes; ++b) {
          if (reach_[k][b]) reach_[a][b] = true;
        }
      }
    }
  }

  bool races() const {
    for (size_t b = 0; b < reach_.size() / 2; ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (conflicts(program_.ops[a % n_], program_.ops[b % n_]) &&
            !reach_[completed(a)][issued(b)]) {
          return true;
        }
      }
    }
    return false;
  }

 private:
  static size_t issued(size_t op) { return 2 * op; }
  static size_t completed(size_t op) { return 2 * op + 1; }

  void link(int copy, size_t i) {
    const Op& op = program_.ops[i];
    const size_t self = copy * n_ + i;
    reach_[issued(self)][completed(self)] = true;
    const std::vector<uint32_t>& list = program_.lanes[static_cast<size_t>(op.lane)];
    for (int c = 0; c <= copy; ++c) {
      for (const uint32_t other : list) {
        const size_t before = c * n_ + other;
        if (before >= self) continue;
        reach_[issued(before)][issued(self)] = true;
        // Published in plan order: a completion that others see is behind those before it.
        reach_[completed(before)][completed(self)] = true;
        if (is_serial(op.lane)) reach_[completed(before)][issued(self)] = true;
      }
    }
    for (const Wait& wait : program_.waits_of(op)) {
      const std::vector<uint32_t>& named = program_.lanes[static_cast<size_t>(wait.lane)];
      const int from = wait.count > 0 ? copy : copy - 1;
      const int count = wait.count > 0 ? wait.count : static_cast<int>(named.size()) + wait.count;
      if (from < 0) continue;
      for (int c = 0; c <= from; ++c) {
        const int last = c < from ? static_cast<int>(named.size()) : count;
        for (int k = 0; k < last; ++k) reach_[completed(c * n_ + named[k])][issued(self)] = true;
      }
    }
  }

  bool conflicts(const Op& a, const Op& b) const {
    for (const Access& x : program_.accesses_of(a)) {
      for (const Access& y : program_.accesses_of(b)) {
        if ((x.mode == Mode::kWrite || y.mode == Mode::kWrite) && x.offset < y.offset + y.bytes &&
            y.offset < x.offset + x.bytes) {
          return true;
        }
      }
    }
    return false;
  }

  const Program& program_;
  const size_t n_;
  std::vector<std::vector<bool>> reach_;
};

Program random_program(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::array<int, kLaneCount> counts = {};
  std::vector<Lane> lanes(static_cast<size_t>(pick(2, 9)));
  for (Lane& lane : lanes) {
    lane = static_cast<Lane>(pick(0, 1) != 0 ? pick(0, 1) : pick(5, 6));
    ++counts[static_cast<size_t>(lane)];
  }
  std::array<int, kLaneCount> earlier = {};
  std::vector<Item> items;
  for (const Lane lane : lanes) {
    Item item{lane, {}, {}};
    for (const int other : {0, 1, 5, 6}) {
      if (pick(0, 2) == 0) continue;
      const int low = -counts[other];
      const int count = earlier[other] > 0 && pick(0, 3) > 0 ? earlier[other] : pick(low / 2, 0);
      item.waits.push_back({static_cast<Lane>(other), count});
    }
    for (int i = pick(0, 2); i >= 0; --i) {
      item.accesses.push_back(
          touch(pick(0, 2) == 0 ? Mode::kWrite : Mode::kRead, pick(0, 30), pick(1, 6)));
    }
    ++earlier[static_cast<size_t>(lane)];
    items.push_back(item);
  }
  return program_of(items);
}

TEST(VerifierRaces, AgreeWithAComparisonOfAllPairs) {
  int racing = 0;
  const int programs = static_cast<int>(test::seeds(1000));
  for (int seed = 0; seed < programs; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const Program program = random_program(random);
    for (const int copies : {1, 2}) {
      const bool expected = PairByPair(program, copies).races();
      ASSERT_EQ(races(program, copies), expected) << "seed " << seed << " copies " << copies;
      racing += expected ? 1 : 0;
    }
  }
  EXPECT_GT(racing, programs / 10);
  EXPECT_LT(racing, 2 * programs - programs / 10);
}

const Access kWriteHere = touch(Mode::kWrite, 0, 8);
const Access kReadHere = touch(Mode::kRead, 4, 8);

TEST(VerifierRaces, ASerialLaneOrdersItsOwnOps) {
  EXPECT_FALSE(races(
      program_of({{Lane::kCompute, {}, {kWriteHere}}, {Lane::kCompute, {}, {kReadHere}}}), 1));
}

TEST(VerifierRaces, AnIoLaneDoesNot) {
  const std::vector<Item> items = {{Lane::kWrite, {}, {kWriteHere}},
                                   {Lane::kWrite, {}, {kReadHere}}};
  EXPECT_TRUE(races(program_of(items), 1));
  const std::vector<Item> waiting = {{Lane::kWrite, {}, {kWriteHere}},
                                     {Lane::kWrite, {{Lane::kWrite, 1}}, {kReadHere}}};
  EXPECT_FALSE(races(program_of(waiting), 1));
}

TEST(VerifierRaces, AWaitIsInheritedByLaterOpsOfTheLane) {
  const std::vector<Item> items = {{Lane::kCompute, {}, {kWriteHere}},
                                   {Lane::kWrite, {{Lane::kCompute, 1}}, {}},
                                   {Lane::kWrite, {}, {kReadHere}}};
  EXPECT_FALSE(races(program_of(items), 1));
}

TEST(VerifierRaces, AWaitIsInheritedThroughAnotherLane) {
  const std::vector<Item> items = {{Lane::kCompute, {}, {kWriteHere}},
                                   {Lane::kWrite, {{Lane::kCompute, 1}}, {}},
                                   {Lane::kOptimizer, {{Lane::kWrite, 1}}, {kReadHere}}};
  EXPECT_FALSE(races(program_of(items), 1));
}

TEST(VerifierRaces, OnlyTheNextStepShowsAMissingNegativeWait) {
  const Item write = {Lane::kOptimizer, {}, {kWriteHere}};
  const Item read = {Lane::kCompute, {{Lane::kOptimizer, 1}}, {kReadHere}};
  EXPECT_FALSE(races(program_of({write, read}), 1));
  EXPECT_TRUE(races(program_of({write, read}), 2));
  const Item waits = {Lane::kOptimizer, {{Lane::kCompute, 0}}, {kWriteHere}};
  EXPECT_FALSE(races(program_of({waits, read}), 2));
}

}  // namespace
}  // namespace strata::plan

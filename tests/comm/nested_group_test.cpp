// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/base/node_ranks.h"
#include "engine/base/units.h"
#include "engine/comm/ordered_sum.h"
#include "tests/comm/group_ranks.h"

// Groups whose ranks are on several machines: sums nest, bytes go to each machine once.
namespace strata::comm {
namespace {

// Ranks, and how many of them are on each machine.
struct Nodes {
  int ranks;
  int near;
};
constexpr Nodes kNodes[] = {{4, 2}, {6, 2}, {6, 3}, {3, 1}, {8, 4}, {4, 4}};

// As threads, and as processes of which some share memory.
void run_both(const Nodes& nodes, const std::function<void(Group&)>& body) {
  for (const int on_node : {0, nodes.near}) {
    SCOPED_TRACE(testing::Message() << nodes.ranks << " ranks, " << nodes.near
                                    << " on a machine, processes: " << (on_node > 0));
    const auto errors = run_threads(nodes.ranks, on_node, {.near = nodes.near}, body);
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

// With exponents that make sums depend on their order.
template <typename T>
std::vector<T> values_of(int rank, int64_t count) {
  uint32_t state = 2654435761u * static_cast<uint32_t>(rank + 1);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value =
        std::ldexp(static_cast<T>(static_cast<int32_t>(state)), -static_cast<int>(state >> 8) % 12);
  }
  return values;
}

void round_sent(Payload payload, std::vector<float>& values) {
  round_to(payload, values.data(), std::ssize(values));
}
void round_sent(Payload, std::vector<double>&) {}

// The sum as group.h says it, of what ranks send.
template <typename T>
std::vector<T> nested_sum(const Nodes& nodes, int64_t count, Payload payload) {
  const auto add = [](std::vector<T>& sum, const std::vector<T>& more) {
    std::ranges::transform(sum, more, sum.begin(), std::plus<>());
  };
  std::vector<T> sums;
  for (int machine = 0; machine < nodes.ranks; machine += nodes.near) {
    std::vector<T> own;
    for (int r = machine; r < machine + nodes.near; ++r) {
      std::vector<T> sent = values_of<T>(r, count);
      round_sent(payload, sent);
      r == machine ? own.swap(sent) : add(own, sent);
    }
    if (nodes.near < nodes.ranks) round_sent(payload, own);
    machine == 0 ? sums.swap(own) : add(sums, own);
  }
  return sums;
}

// Parts of several pieces are of one shape of machines alone.
std::vector<int64_t> part_sizes(const Nodes& nodes) {
  std::vector<int64_t> sizes = {1, 5, 3000};
  if (nodes.ranks == 4 && nodes.near == 2) sizes.insert(sizes.end(), {131072 + 17, 3 * 131072});
  return sizes;
}

TEST(NestedGroup, SumsOfPartsAreOfMachinesInOrder) {
  for (const Nodes& nodes : kNodes) {
    for (const int64_t size : part_sizes(nodes)) {
      for (const Payload payload : {Payload::kF32, Payload::kBF16, Payload::kMxInt8}) {
        const int64_t part = round_up(size, block_of(payload));
        const int64_t count = part * nodes.ranks;
        const auto due = nested_sum<float>(nodes, count, payload);
        run_both(nodes, [&](Group& group) {
          const auto own_due = due.begin() + group.rank() * part;
          for (const bool in_place : {false, true}) {
            std::vector<float> whole = values_of<float>(group.rank(), count);
            std::vector<float> apart(static_cast<size_t>(part));
            float* out = in_place ? whole.data() + group.rank() * part : apart.data();
            const ReduceRange range = {whole.data(), part, out};
            group.reduce_chunks({&range, 1}, payload);
            EXPECT_TRUE(std::equal(out, out + part, own_due)) << part << ", in place " << in_place;
          }
        });
      }
    }
  }
}

TEST(NestedGroup, SumsForAllAreOfMachinesInOrder) {
  for (const Nodes& nodes : kNodes) {
    for (const int64_t part : part_sizes(nodes)) {
      const int64_t count = part * nodes.ranks - nodes.ranks / 2;  // not a multiple
      const int64_t blocks = round_up(count, block_of(Payload::kMxInt8));
      const auto due = nested_sum<float>(nodes, count, Payload::kF32);
      const auto narrow_due = nested_sum<float>(nodes, count, Payload::kBF16);
      const auto block_due = nested_sum<float>(nodes, blocks, Payload::kMxInt8);
      const auto double_due = nested_sum<double>(nodes, count, Payload::kF32);
      run_both(nodes, [&](Group& group) {
        auto values = values_of<float>(group.rank(), count);
        group.all_reduce_sum(values.data(), count);
        EXPECT_EQ(values, due) << count;
        values = values_of<float>(group.rank(), count);
        group.all_reduce_sum(values.data(), count, Payload::kBF16);
        EXPECT_EQ(values, narrow_due) << count;
        values = values_of<float>(group.rank(), blocks);
        group.all_reduce_sum(values.data(), blocks, Payload::kMxInt8);
        EXPECT_EQ(values, block_due) << blocks;
        auto doubles = values_of<double>(group.rank(), count);
        group.all_reduce_sum(doubles.data(), count);
        EXPECT_EQ(doubles, double_due) << count;
      });
    }
  }
}

TEST(NestedGroup, PartsReachEveryRank) {
  for (const Nodes& nodes : kNodes) {
    run_both(nodes, [&](Group& group) {
      std::vector<std::vector<uint8_t>> wholes, due;
      std::vector<GatherRange> ranges;
      const int large = nodes.ranks == 4 ? 1 << 20 : 1 << 10;  // bytes of a piece
      for (const int64_t part : {3, 40000, large + 5, 0, 3 * large}) {
        std::vector<uint8_t> whole(static_cast<size_t>(part * nodes.ranks), 0xee);
        due.push_back(whole);
        for (size_t i = 0; i < whole.size(); ++i) {
          const auto rank = static_cast<int>(i / static_cast<size_t>(part));
          due.back()[i] = static_cast<uint8_t>(31 * rank + static_cast<int>(i % 251));
          if (rank == group.rank()) whole[i] = due.back()[i];
        }
        wholes.push_back(std::move(whole));
        ranges.push_back({wholes.back().data(), part});
      }
      for (size_t i = 0; i < ranges.size(); ++i) ranges[i].base = wholes[i].data();
      group.gather_chunks(ranges);
      EXPECT_TRUE(wholes == due) << "rank " << group.rank();
    });
  }
}

TEST(NestedGroup, BroadcastsReachEveryRankFromAny) {
  for (const Nodes& nodes : kNodes) {
    run_both(nodes, [&](Group& group) {
      for (int root = 0; root < nodes.ranks; ++root) {
        std::vector<int> values(70000, group.rank() == root ? root + 1 : -1);
        group.broadcast(values.data(), std::ssize(values) * 4, root);
        EXPECT_EQ(values, std::vector<int>(70000, root + 1));
      }
    });
  }
}

// The same for threads and processes: each machine gets every byte once.
TEST(NestedGroup, MachinesGetEachByteOnce) {
  for (const Nodes& nodes : kNodes) {
    const int64_t machines = nodes.ranks / nodes.near;
    run_both(nodes, [&](Group& group) {
      const SentBytes before = group.sent();
      std::vector<float> values(static_cast<size_t>(nodes.ranks) * 5), out(5);
      group.gather(values.data(), 20);
      const ReduceRange range = {values.data(), 5, out.data()};
      group.reduce(range);
      group.all_reduce_sum(values.data(), std::ssize(values));
      const int64_t within = (nodes.near - 1) * machines, between = machines - 1;
      EXPECT_EQ(group.sent() - before, (SentBytes{within * 80, between * 80}));
    });
    std::mutex mutex;
    for (const int root : {0, nodes.ranks - 1}) {
      std::array<SentBytes, 2> sums;
      run_both(nodes, [&](Group& group) {
        std::vector<float> values(10);
        const SentBytes before = group.sent();
        group.broadcast(values.data(), 40, root);
        const std::lock_guard lock(mutex);
        sums[0] += group.sent() - before;
      });
      const int64_t runs = 2;
      EXPECT_EQ(sums[0], (SentBytes{machines * (nodes.near - 1) * 40, (machines - 1) * 40}) * runs);
    }
  }
}

// Three machines with two, two and one rank: nothing nests.
TEST(NestedGroup, UnevenMachinesAreAsManyAsRanks) {
  const Nodes flat = {5, 5};
  const auto due = nested_sum<float>(flat, 4000, Payload::kF32);
  const auto errors = run_threads(5, 2, {}, [&](Group& group) {
    auto values = values_of<float>(group.rank(), 4000);
    group.all_reduce_sum(values.data(), 4000);
    EXPECT_EQ(values, due);
    EXPECT_EQ(group.sent().within > 0, group.rank() < 4);
    std::vector<int> ranks(5, -1);
    ranks[static_cast<size_t>(group.rank())] = group.rank();
    group.gather(ranks.data(), 4);
    EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2, 3, 4}));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(RanksTogether, AreThoseOfAMachineWhereAllHaveAsMany) {
  const auto together = [](std::vector<int> ranks, int on_node) {
    return ranks_together(ranks, on_node);
  };
  EXPECT_EQ(together({0, 1, 2, 3}, 2), 2);
  EXPECT_EQ(together({0, 1, 2, 3}, 0), 4);
  EXPECT_EQ(together({0, 1, 2, 3}, 4), 4);
  EXPECT_EQ(together({1, 3, 5, 7}, 4), 2);     // every second one
  EXPECT_EQ(together({0, 4, 8}, 4), 1);        // one of each
  EXPECT_EQ(together({0, 1, 2, 3, 4}, 2), 1);  // uneven
  EXPECT_EQ(together({4, 5, 6, 7, 8, 9, 10, 11}, 8), 4);
  EXPECT_EQ(together({2, 3, 4, 5, 6, 7}, 4), 1);
  EXPECT_EQ(together({3}, 2), 1);
}

}  // namespace
}  // namespace strata::comm

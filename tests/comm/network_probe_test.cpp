// SPDX-License-Identifier: Apache-2.0
// What ranks measure of the network between machines: all of them get the same figures, however
// many they are. tests/cli/machines_fault_test.cpp compares the rate with a network's.
#include "engine/comm/network_probe.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/comm/group_local.h"

namespace strata::comm {
namespace {

TEST(NetworkProbe, GivesAllRanksTheSameFigures) {
  for (const int count : {2, 4, 6}) {
    const auto groups = make_local_groups(count, {});
    std::vector<NetworkFigures> found(static_cast<size_t>(count));
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < found.size(); ++r) {
      threads.emplace_back([&, r] { found[r] = measure_network(*groups[r], count / 2); });
    }
    threads.clear();
    EXPECT_GT(found.front().bytes_per_s, 0);
    EXPECT_GT(found.front().latency_s, 0);
    for (const NetworkFigures& one : found) {
      EXPECT_EQ(one.bytes_per_s, found.front().bytes_per_s);
      EXPECT_EQ(one.latency_s, found.front().latency_s);
    }
  }
}

}  // namespace
}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
// What groups by Gloo do beyond other groups: they meet by the store of a job, may have some of its
// ranks, and stop with the job, also while they connect.
#include "engine/comm/group_gloo.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/job_server.h"
#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

TEST(GroupGloo, GroupsOfSomeRanksOfAJobWorkBesideEachOther) {
  constexpr int kSize = 4;
  const JobServer server({.secret = kJobSecret, .size = kSize});
  std::vector<std::jthread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&, r] {
      JobStore store(options_of(server, r, kSize));
      const std::vector<int> ranks = r % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3};
      const auto all = make_gloo_group(store);
      const auto half =
          make_gloo_group(store, {.name = r % 2 == 0 ? "even" : "odd", .ranks = ranks});
      EXPECT_EQ(half->size(), 2);
      EXPECT_EQ(ranks[static_cast<size_t>(half->rank())], r);
      std::vector<int> whole(2, -1);
      whole[static_cast<size_t>(half->rank())] = r;
      half->gather(whole.data(), sizeof(int));
      EXPECT_EQ(whole, ranks);
      double sum = r;
      all->all_reduce_sum(&sum, 1);
      EXPECT_EQ(sum, 6);
      all->barrier();
    });
  }
}

TEST(GroupGloo, WorksOverIPv6) {
  const JobServer server({.address = "[::1]:0", .secret = kJobSecret, .size = 2});
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      JobStore store(options_of(server, r, 2));
      const auto group = make_gloo_group(store, {}, "::1");
      float sum = 1;
      group->all_reduce_sum(&sum, 1);
      EXPECT_EQ(sum, 2);
      group->barrier();
    });
  }
}

TEST(GroupGloo, ARankThatEndsItsGroupTooEarlyEndsTheWaitsOfOthers) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2)), second(options_of(server, 1, 2));
  std::unique_ptr<Group> early;
  std::jthread other([&] { early = make_gloo_group(second); });
  const auto group = make_gloo_group(first);
  other.join();
  early.reset();
  EXPECT_FAILURE(kPeer, "rank 1", group->barrier());
  EXPECT_FAILURE(kPeer, "rank 0 stopped: barrier: rank 1", second.throw_if_stopped_soon("call"));
}

TEST(GroupGloo, ARankThatDoesNotComeIsNamed) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore store(options_of(server, 0, 2));
  EXPECT_FAILURE(kDeadline, "rank 1 sets it, and it has not connected",
                 make_gloo_group(store, {.connect_s = 0.1}));
}

// Rank 1 gives an address, of the side that connects, and then does not connect.
TEST(GroupGloo, AStopEndsTheConnecting) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2)), second(options_of(server, 1, 2));
  const std::jthread other([&] {
    std::string address = second.get("gloo/world/0/address", 60);
    address.replace(2, 2, "\xff\xff");  // the port: the larger address connects
    second.set("gloo/world/1/address", address);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    second.stop("enough");
  });
  const double begin_s = now_s();
  EXPECT_FAILURE(kPeer, "rank 1 stopped: enough", make_gloo_group(first, {.connect_s = 60}));
  EXPECT_LT(now_s() - begin_s, 20);
}

}  // namespace
}  // namespace strata::comm

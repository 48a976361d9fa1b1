// SPDX-License-Identifier: Apache-2.0
// What groups by TCP do beyond other groups: they meet by the store of a job, may have some of its
// ranks, and stop with the job, also while they connect.
#include "engine/comm/group_tcp.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/call_header.h"
#include "engine/comm/job_server.h"
#include "engine/comm/tcp_meeting.h"
#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

TEST(GroupTcp, GroupsOfSomeRanksOfAJobWorkBesideEachOther) {
  constexpr int kSize = 4;
  const JobServer server({.secret = kJobSecret, .size = kSize});
  std::vector<std::jthread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&, r] {
      JobStore store(options_of(server, r, kSize));
      const std::vector<int> ranks = r % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3};
      const auto all = make_tcp_group(store);
      const auto half =
          make_tcp_group(store, {.name = r % 2 == 0 ? "even" : "odd", .ranks = ranks});
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

TEST(GroupTcp, WorksOverIPv6) {
  const JobServer server({.address = "[::1]:0", .secret = kJobSecret, .size = 2});
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      JobStore store(options_of(server, r, 2));
      const auto group = make_tcp_group(store, {}, "::1");
      float sum = 1;
      group->all_reduce_sum(&sum, 1);
      EXPECT_EQ(sum, 2);
      group->barrier();
    });
  }
}

TEST(GroupTcp, ARankThatEndsItsGroupTooEarlyEndsTheWaitsOfOthers) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2)), second(options_of(server, 1, 2));
  std::unique_ptr<Group> early;
  std::jthread other([&] { early = make_tcp_group(second); });
  const auto group = make_tcp_group(first);
  other.join();
  early.reset();
  const std::string words = "rank 0 stopped: rank 1 is gone from group world";
  EXPECT_FAILURE(kPeer, words, group->barrier());
  EXPECT_FAILURE(kPeer, words, second.throw_if_stopped_soon("call"));
}

// Rank 0 is there, and its connection ends within a transfer.
TEST(GroupTcp, AConnectionThatBreaksIsNamed) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2)), second(options_of(server, 1, 2));
  const std::jthread other([&] {
    const auto connections =
        meet_by_tcp(first, {.ranks = {0, 1}}, {.is_met = [](int place) { return place == 1; }});
    const int64_t said = sizeof(CallHeader);
    throw_at(connections[1], std::string(reinterpret_cast<const char*>(&said), 8) + "barr");
  });
  EXPECT_FAILURE(kPeer,
                 "barrier: rank 0: its connection is lost: the other end closed it (did its "
                 "process end?)",
                 make_tcp_group(second));
  EXPECT_FAILURE(kPeer, "rank 1 stopped: barrier: rank 0: its connection is lost",
                 first.throw_if_stopped_soon("call"));
}

TEST(GroupTcp, ARankThatDoesNotComeIsNamed) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore store(options_of(server, 0, 2));
  EXPECT_FAILURE(kDeadline, "rank 1 sets it, and it has not connected",
                 make_tcp_group(store, {.connect_s = 0.1}));
}

// Rank 1 gives an address where nobody answers.
TEST(GroupTcp, AStopEndsTheConnecting) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2)), second(options_of(server, 1, 2));
  const Socket silent = listen_at({"127.0.0.1", "0"});
  const std::jthread other([&] {
    second.set("tcp/world/1/address", address_of(silent) + " ticket");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    second.stop("enough");
  });
  const double begin_s = now_s();
  EXPECT_FAILURE(kPeer, "rank 1 stopped: enough", make_tcp_group(first, {.connect_s = 60}));
  EXPECT_LT(now_s() - begin_s, 20);
}

}  // namespace
}  // namespace strata::comm

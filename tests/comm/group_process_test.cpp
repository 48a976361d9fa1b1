// SPDX-License-Identifier: Apache-2.0
// Ranks of groups by TCP as processes that are killed, stopped and resumed: the others end in time,
// and say which rank it was and why. They exchange by TCP, by memory, or some by either.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <deque>

#include "engine/comm/group_tcp.h"
#include "engine/comm/node_transport.h"
#include "tests/comm/rank_process.h"

namespace strata::comm {
namespace {

constexpr int kRanks = 3;

// The parameter: how many ranks are on a machine.
class ProcessesOnNode : public testing::TestWithParam<int> {
 protected:
  ExchangeOptions options() const { return {.ranks_on_node = GetParam()}; }
  void check_signal(const test::JobOfProcesses& job, int number, int chosen, int delay_ms,
                    const std::string& words, double within_s) const;
};

// Sums without end; the wanted end is an Error (kPeer) with these words.
std::string sum_until(Group& group, const std::string& words) {
  try {
    std::vector<float> whole(30000);
    while (true) group.all_reduce_sum(whole.data(), 30000);
  } catch (const Error& error) {
    const std::string text = error.what();
    return error.code() == ErrorCode::kPeer && text.find(words) != text.npos ? "" : text;
  }
}

// Rank `chosen` gets a signal at any moment after all are connected. The others end with these
// words.
void ProcessesOnNode::check_signal(const test::JobOfProcesses& job, int number, int chosen,
                                   int delay_ms, const std::string& words, double within_s) const {
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      const auto member = job.join(r);
      ExchangeOptions sixty = options();
      sixty.group.deadline_s = 60;
      const auto group = make_tcp_group(*member.store, sixty);
      job.mark("ready" + std::to_string(r));
      return sum_until(*group, words);
    });
  }
  for (int r = 0; r < kRanks; ++r) job.await("ready" + std::to_string(r));
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  ranks[static_cast<size_t>(chosen)].signal(number);
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < kRanks; ++r) {
    if (r == chosen) continue;
    EXPECT_TRUE(ranks[static_cast<size_t>(r)].wait()) << r;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(within_s));
}

TEST_P(ProcessesOnNode, AProcessThatIsKilledEndsTheOthers) {
  for (int round = 0; round < 8; ++round) {
    check_signal(test::JobOfProcesses(kRanks), SIGKILL, 1, 7 * round,
                 "rank 1 is gone (did its process end?)", 5);
  }
}

TEST_P(ProcessesOnNode, TheProcessOfTheServerThatIsKilledEndsTheOthers) {
  check_signal(test::JobOfProcesses(kRanks), SIGKILL, 0, 10, "rank 0 is gone (", 5);
}

TEST_P(ProcessesOnNode, AProcessThatIsStoppedEndsTheOthers) {
  check_signal(test::JobOfProcesses(kRanks, 1.5), SIGSTOP, 2, 10, "rank 2 is silent for 1.5 s", 10);
  check_signal(test::JobOfProcesses(kRanks, 1.5), SIGSTOP, 0, 10, "rank 0 is silent for 1.5 s", 10);
}

// Each process sees that it was stopped itself, and does not blame the others.
TEST_P(ProcessesOnNode, AJobThatIsStoppedAsAWholeGoesOn) {
  const test::JobOfProcesses job(kRanks, 1);
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      const auto member = job.join(r);
      const auto group = make_tcp_group(*member.store, options());
      job.mark("ready" + std::to_string(r));
      job.await("resumed");
      double ranks_here = 1;
      group->all_reduce_sum(&ranks_here, 1);
      return std::string(ranks_here == kRanks ? "" : "a rank is missing");
    });
  }
  for (int r = 0; r < kRanks; ++r) job.await("ready" + std::to_string(r));
  for (const auto& rank : ranks) rank.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  for (const auto& rank : ranks) rank.signal(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for a beat of each
  job.mark("resumed");
  for (auto& rank : ranks) EXPECT_TRUE(rank.wait());
}

TEST_P(ProcessesOnNode, AProcessThatIsKilledBeforeItConnectsEndsTheConnectingOfOthers) {
  const test::JobOfProcesses job(kRanks);
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto member = job.join(r);
      job.mark("ready" + std::to_string(r));
      if (r == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      try {
        make_tcp_group(*member.store, options());
      } catch (const Error& error) {
        return std::string(error.what()).find("rank 1 is gone") != std::string::npos ? ""
                                                                                     : error.what();
      }
      return "connected without rank 1";
    });
  }
  for (int r = 0; r < kRanks; ++r) job.await("ready" + std::to_string(r));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ranks[1].signal(SIGKILL);
  EXPECT_TRUE(ranks[0].wait());
  EXPECT_TRUE(ranks[2].wait());
}

// A process that cannot have a file of more than a page has no memory to share.
TEST(NodeTransport, RanksOfWhichOneCannotShareMemoryExchangeByTcp) {
  const test::JobOfProcesses job(kRanks);
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const rlimit page = {4096, 4096};
      if (r == 1 && setrlimit(RLIMIT_FSIZE, &page) != 0) return "no limit";
      signal(SIGXFSZ, SIG_IGN);
      const auto member = job.join(r);
      ExchangeOptions options = {.name = "alone", .ranks = {0, 1, 2}, .ranks_on_node = kRanks};
      if (meet_on_node(*member.store, options, r).transport) return "memory is shared";
      options.name = "all";
      const auto group = make_tcp_group(*member.store, options);
      double ranks_here = 1;
      group->all_reduce_sum(&ranks_here, 1);
      group->barrier();
      return std::string(ranks_here == kRanks ? "" : "a rank is missing");
    });
  }
  for (auto& rank : ranks) EXPECT_TRUE(rank.wait());
}

INSTANTIATE_TEST_SUITE_P(Of3, ProcessesOnNode, testing::Values(1, 2, 3));

}  // namespace
}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
// Ranks of Gloo groups as processes that are killed, stopped and resumed: the others end in time,
// and say which rank it was and why.
#include <gtest/gtest.h>

#include <deque>

#include "engine/comm/group_gloo.h"
#include "tests/comm/rank_process.h"

namespace strata::comm {
namespace {

constexpr int kRanks = 3;

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
void check_signal(const test::JobOfProcesses& job, int number, int chosen, int delay_ms,
                  const std::string& words, double within_s) {
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      const auto member = job.join(r);
      const auto group = make_gloo_group(*member.store, {.group = {.deadline_s = 60}});
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

TEST(GroupGloo, AProcessThatIsKilledEndsTheOthers) {
  for (int round = 0; round < 8; ++round) {
    check_signal(test::JobOfProcesses(kRanks), SIGKILL, 1, 7 * round,
                 "rank 1 is gone (did its process end?)", 5);
  }
}

TEST(GroupGloo, TheProcessOfTheServerThatIsKilledEndsTheOthers) {
  check_signal(test::JobOfProcesses(kRanks), SIGKILL, 0, 10, "rank 0 is gone (", 5);
}

TEST(GroupGloo, AProcessThatIsStoppedEndsTheOthers) {
  check_signal(test::JobOfProcesses(kRanks, 1.5), SIGSTOP, 2, 10, "rank 2 is silent for 1.5 s", 10);
  check_signal(test::JobOfProcesses(kRanks, 1.5), SIGSTOP, 0, 10, "rank 0 is silent for 1.5 s", 10);
}

// Each process sees that it was stopped itself, and does not blame the others.
TEST(GroupGloo, AJobThatIsStoppedAsAWholeGoesOn) {
  const test::JobOfProcesses job(kRanks, 1);
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      const auto member = job.join(r);
      const auto group = make_gloo_group(*member.store);
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

TEST(GroupGloo, AProcessThatIsKilledBeforeItConnectsEndsTheConnectingOfOthers) {
  const test::JobOfProcesses job(kRanks);
  std::deque<test::RankProcess> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto member = job.join(r);
      job.mark("ready" + std::to_string(r));
      if (r == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      try {
        make_gloo_group(*member.store);
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

}  // namespace
}  // namespace strata::comm

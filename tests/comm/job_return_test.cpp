// SPDX-License-Identifier: Apache-2.0
// A job whose ranks may come again: one that is gone stops nothing and takes its values with it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

TEST(JobReturn, ARankThatIsGoneOrHasLeftMayComeAgain) {
  const JobServer server({.secret = kJobSecret, .size = 3, .ranks_return = true});
  JobStore store(options_of(server, 0, 3));
  JobStore other(options_of(server, 2, 3));
  other.set("of other", "v");
  std::optional<BareRank> rank(std::in_place, server, 1, 3);
  rank->link.channel.send(kSetOfK);
  rank->hear();
  EXPECT_EQ(store.get("k", 10), "v");
  EXPECT_FAILURE(kConfig, "this rank came before, and it is connected",
                 JobStore(options_of(server, 1, 3)));
  rank.reset();
  for (int times = 0; times < 2; ++times) {
    JobStore again(options_of(server, 1, 3));
    EXPECT_FAILURE(kDeadline, "get: k", store.get("k", 0.02));
    again.set("k", "w");
    EXPECT_EQ(other.get("k", 10), "w");
    EXPECT_FAILURE(kConfig, "it is connected", JobStore(options_of(server, 1, 3)));
  }
  EXPECT_EQ(store.get("of other", 10), "v");
  store.throw_if_stopped("none of this stops the job");
}

TEST(JobReturn, WhatRankZeroHasSetStays) {
  const JobServer server({.secret = kJobSecret, .size = 2, .ranks_return = true});
  { JobStore(options_of(server, 0, 2)).set("k", "v"); }
  EXPECT_EQ(JobStore(options_of(server, 1, 2)).get("k", 10), "v");
}

TEST(JobReturn, ARankThatIsSilentLosesItsConnectionAndMayComeAgain) {
  const JobServer server({.secret = kJobSecret, .size = 2, .silence_s = 1, .ranks_return = true});
  const JobStore store(options_of(server, 0, 2));
  const BareRank silent(server, 1, 2);
  EXPECT_TRUE(is_closed_within(silent.link.socket, 20));
  const JobStore again(options_of(server, 1, 2));
  store.throw_if_stopped("silence does not stop the job");
}

// They wait for the next server there.
TEST(JobReturn, AServerThatEndsAdmitsNobody) {
  auto server = std::make_unique<JobServer>(
      JobServerOptions{.secret = kJobSecret, .size = 2, .linger_s = 60, .ranks_return = true});
  JobStoreOptions late = options_of(*server, 1, 2);
  late.connect_s = 1;
  auto store = std::make_unique<JobStore>(options_of(*server, 0, 2));
  const std::jthread end([&] { server.reset(); });
  while (failure_of([&] { const JobStore early(late); }).code != ErrorCode::kDeadline) {
  }
  EXPECT_FAILURE(kDeadline, "no connection within 1 s", JobStore{late});
  store->throw_if_stopped("the others go on");
  store.reset();
}

}  // namespace
}  // namespace strata::comm

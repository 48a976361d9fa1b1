// SPDX-License-Identifier: Apache-2.0
// Who may use the store of a job: wrong secrets, recorded and changed bytes, strangers that send
// garbage, slowly or nothing. The job goes on beside them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

TEST(JobStoreRefusal, WhoDoesNotKnowTheSecretIsRefused) {
  const JobServer server({.secret = kJobSecret});
  EXPECT_FAILURE(kConfig, "secret: the server has another one",
                 JobStore({.address = server.address(), .secret = "another, just as long"}));
  EXPECT_FAILURE(kConfig, "secret: it has 0 bytes", JobStore({.address = server.address()}));
  EXPECT_FAILURE(kConfig, "secret: it has 0 bytes", JobServer(JobServerOptions{}));

  // Messages without the handshake.
  const Socket rude = stranger_at(server);
  BareRank rank(server, 0, 1);
  throw_at(rude, rank.sealed(kSetOfK));
  EXPECT_TRUE(is_closed_within(rude, 10));
}

TEST(JobStoreRefusal, RanksThatDoNotBelongAreRefused) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  const JobStore store(options_of(server, 0, 2));
  EXPECT_FAILURE(kConfig, "rank 0: refused: this rank came before, and it is connected",
                 JobStore(options_of(server, 0, 2)));
  EXPECT_FAILURE(kConfig, "it is started as one of 3 ranks, and the job has 2",
                 JobStore(options_of(server, 1, 3)));
  { const JobStore short_lived(options_of(server, 1, 2)); }
  EXPECT_FAILURE(kConfig, "this rank came before, and it has left the job",
                 JobStore(options_of(server, 1, 2)));
  const BareRank outside(server, 2, 2);
  EXPECT_TRUE(is_closed_within(outside.link.socket, 10));
  store.throw_if_stopped("none of them stops the job");
}

// All that a rank sent is sent again, as it is.
TEST(JobStoreRefusal, ARecordedConnectionIsRefused) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore store(options_of(server, 0, 2));
  BareRank rank(server, 1, 2);
  rank.link.channel.send({.kind = JobMessage::Kind::kAdd, .number = 1, .key = "n"});
  ASSERT_EQ(rank.hear()->number, 1);
  rank.link.channel.send({.kind = JobMessage::Kind::kLeave});
  while (rank.hear()) {
  }
  const Socket again = stranger_at(server);
  throw_at(again, rank.sent);
  EXPECT_TRUE(is_closed_within(again, 10));
  EXPECT_EQ(store.add("n", 0), 1);
}

// Whoever changes, repeats or adds bytes of a rank's connection ends that connection, and so the
// job.
TEST(JobStoreRefusal, ChangedBytesOfARankStopTheJob) {
  struct Case {
    std::function<std::string(BareRank&)> bytes;
    const char* words;
  };
  const Case cases[] = {
      {[](BareRank& rank) {
         std::string bytes = rank.sealed(kSetOfK);
         bytes[20] ^= 1;
         return bytes;
       },
       "a message has a wrong MAC"},
      {[](BareRank& rank) {
         const std::string bytes = rank.sealed(kSetOfK);
         return bytes + bytes;
       },
       "a message is repeated or missing"},
      {[](BareRank&) { return std::string(12, '\xff'); }, "a message claims 4294967295 bytes"},
      {[](BareRank& rank) { return rank.sealed({.kind = JobMessage::Kind::kStopped}); },
       "it sent a message that only the server may send"},
  };
  for (const Case& each : cases) {
    const JobServer server({.secret = kJobSecret, .size = 2});
    JobStore store(options_of(server, 0, 2));
    BareRank rank(server, 1, 2);
    throw_at(rank.link.socket, each.bytes(rank));
    EXPECT_FAILURE(kPeer, each.words, store.get("never", 20));
    EXPECT_FAILURE(kPeer, "set: rank 1 is gone (", store.set("k", "v"));
  }
}

TEST(JobStoreRefusal, RandomBytesOfStrangersChangeNothing) {
  const JobServer server({.secret = kJobSecret, .authenticate_s = 0.5});
  JobStore store(options_of(server, 0, 1));
  const Philox random(4);
  std::vector<Socket> strangers;
  for (uint64_t i = 0; i < 300; ++i) {
    std::string bytes(1 + random.u64(i, 0) % 5000, '\0');
    for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(random.u64(i, k + 1));
    if (i % 2 == 0) bytes.insert(0, "STRATAJ1");
    strangers.push_back(stranger_at(server));
    throw_at(strangers.back(), bytes);
    EXPECT_EQ(store.add("n", 1), static_cast<int64_t>(i + 1));
  }
  for (const Socket& stranger : strangers) EXPECT_TRUE(is_closed_within(stranger, 10));
  store.set("k", "v");
}

TEST(JobStoreRefusal, AStrangerThatSendsSlowlyIsDroppedAndDelaysNobody) {
  const JobServer server({.secret = kJobSecret, .authenticate_s = 1});
  JobStore store(options_of(server, 0, 1));
  const double begin_s = now_s();
  double closed_s = 0;
  std::jthread slow([&] {
    const Socket stranger = stranger_at(server);
    for (const char byte : std::string("STRATAJ1") + std::string(40, '\0')) {
      throw_at(stranger, {&byte, 1});
      if (is_closed_within(stranger, 0.1)) break;
    }
    closed_s = now_s() - begin_s;
  });
  double slowest_s = 0;
  while (now_s() - begin_s < 1) {
    const double call_s = now_s();
    store.add("n", 1);
    slowest_s = std::max(slowest_s, now_s() - call_s);
  }
  slow.join();
  EXPECT_LT(slowest_s, 0.5);
  EXPECT_GT(closed_s, 0.5);
  EXPECT_LT(closed_s, 3.5);  // its 48 bytes would have taken 4.8 s
}

// A message may come in pieces; nobody waits for its rest.
TEST(JobStoreRefusal, ARankThatSendsSlowlyDelaysNobody) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore store(options_of(server, 0, 2));
  BareRank rank(server, 1, 2);
  const std::string bytes = rank.sealed(kSetOfK);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i + 1 == bytes.size()) {
      EXPECT_FAILURE(kDeadline, "get: k", store.get("k", 0.02));
    }
    EXPECT_EQ(store.add("n", 1), static_cast<int64_t>(i + 1));
    throw_at(rank.link.socket, bytes.substr(i, 1));
  }
  EXPECT_EQ(store.get("k", 10), "v");
}

TEST(JobStoreRefusal, AThousandSilentConnectionsKeepNobodyOut) {
  constexpr size_t kMany = 1000;
  rlimit files = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < kMany + 200) GTEST_SKIP() << "needs 1,200 open files: ulimit -n";
  const rlim_t before =
      std::exchange(files.rlim_cur, std::max<rlim_t>(files.rlim_cur, kMany + 200));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  {
    const JobServer server({.secret = kJobSecret, .size = 2, .authenticate_s = 600});
    JobStore early(options_of(server, 0, 2));
    std::vector<Socket> silent;
    for (size_t i = 0; i < kMany; ++i) silent.push_back(stranger_at(server));
    const double begin_s = now_s();
    JobStore late(options_of(server, 1, 2));
    late.set("k", "v");
    EXPECT_EQ(early.get("k", 10), "v");
    EXPECT_LT(now_s() - begin_s, 5);
    size_t open = 0;
    for (const Socket& each : silent) open += is_closed_within(each, 1e-3) ? 0 : 1;
    EXPECT_LE(open, 64u);
  }
  files.rlim_cur = before;
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
}

}  // namespace
}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
// Who may connect while a group forms: strangers of every kind are refused, and the group forms all
// the same, of its ranks alone. Ranks that cannot connect say which rank is missing, and why.
#include "engine/comm/tcp_meeting.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/rng.h"
#include "engine/comm/job_connection.h"
#include "engine/comm/job_server.h"
#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

// Rank 2 of a group of three listens; the test is ranks 0 and 1, and whoever else comes.
class TcpMeetingOf3 : public testing::Test {
 protected:
  // Ranks 0 and 1 have said that they are there, so rank 2 does not wait for that.
  void SetUp() override {
    for (int r = 0; r < 3; ++r)
      stores_.push_back(std::make_unique<JobStore>(options_of(server_, r, 3)));
    for (int r = 0; r < 2; ++r) stores_[static_cast<size_t>(r)]->set(key_of(r), "nowhere ticket");
    listening_ =
        std::jthread([this] { failure_ = comm::failure_of([this] { connections_ = meet(2); }); });
    const std::string told = stores_[0]->get(key_of(2), 60);
    address_ = told.substr(0, told.find(' '));
    ticket_ = told.substr(told.find(' ') + 1);
  }

  static std::string key_of(int rank) { return fmt::format("tcp/world/{}/address", rank); }
  std::vector<Socket> meet(int rank) {
    JobStore& store = *stores_[static_cast<size_t>(rank)];
    return meet_by_tcp(
        store, {.ranks = {0, 1, 2}, .connect_s = connect_s_},
        {.own_place = rank, .is_met = [](int) { return true; }, .authenticate_s = authenticate_s_});
  }

  Socket stranger() const { return connect_to(parse_endpoint(address_), 10); }
  // As an honest rank calls rank 2, if all is as it should be.
  struct Call {
    std::string group = "world";
    int callee = 2;
    std::optional<std::string> ticket = {};
    std::optional<std::string> secret = {};
    JobChannel::Client who = {.rank = 0, .size = 3};
  };
  JobConnection call(const Call& what) const {
    const std::string purpose =
        fmt::format("tcp/{}/{}/{}", what.group, what.callee, what.ticket.value_or(ticket_));
    return {stranger(),
            JobChannel::client(what.secret.value_or(stores_[0]->secret_for(purpose)), what.who)};
  }
  // Whether rank 2 proves itself in turn and keeps the connection.
  static bool is_taken(JobConnection& link) {
    try {
      while (!link.shake_hands()) {
        if (!wait_until_ready(link.socket, false, 10)) return false;
      }
    } catch (const Error&) {
      return false;
    }
    return !is_closed_within(link.socket, 0.1);
  }

  // As rank 0 or 1, which rank 2 awaits.
  void join(int rank) {
    JobConnection link = call({.who = {.rank = rank, .size = 3}});
    EXPECT_TRUE(is_taken(link)) << rank;
    taken_[rank] = std::move(link.socket);
  }

  // The group forms now.
  void expect_group() {
    for (int r = 0; r < 2; ++r) {
      if (taken_[r].fd() < 0) join(r);
    }
    listening_.join();
    EXPECT_EQ(failure_.text, "");
    ASSERT_EQ(connections_.size(), 3u);
    for (size_t r = 0; r < 2; ++r) {
      const std::string word = fmt::format("this is rank {}", r);
      char room[64] = {};
      ASSERT_EQ(taken_[r].write_some(word), word.size());
      ASSERT_TRUE(wait_until_ready(connections_[r], false, 10));
      EXPECT_EQ(connections_[r].read_some(room), word.size());
      EXPECT_EQ(room, word);
    }
    EXPECT_FAILURE(kPeer, "cannot connect", stranger());  // nothing listens any more
    stores_[1]->throw_if_stopped("nobody stops the job");
  }

  const JobServer server_{{.secret = kJobSecret, .size = 3}};
  std::vector<std::unique_ptr<JobStore>> stores_;
  double connect_s_ = 60, authenticate_s_ = 0.5;
  std::string address_, ticket_;
  Socket taken_[2];
  std::vector<Socket> connections_;
  Failure failure_;
  std::jthread listening_;
};

TEST_F(TcpMeetingOf3, RandomBytesAreRefused) {
  const Philox random(6);
  std::vector<Socket> strangers;
  for (uint64_t i = 0; i < 200; ++i) {
    std::string bytes(1 + random.u64(i, 0) % 300, '\0');
    for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(random.u64(i, k + 1));
    if (i % 3 == 1) bytes.insert(0, "STRATAJ1");
    if (i % 3 == 2) bytes = std::string(80 + i, i % 2 == 0 ? '\xff' : '\0');
    strangers.push_back(stranger());
    throw_at(strangers.back(), bytes);
  }
  for (const Socket& stranger : strangers) EXPECT_TRUE(is_closed_within(stranger, 10));
  expect_group();
}

// Megabytes of nonsense behind a hello are not read.
TEST_F(TcpMeetingOf3, AFloodOfBytesIsRefused) {
  const Socket flood = stranger();
  throw_at(flood, "STRATAJ1" + std::string(8 << 20, '\x7f'));
  EXPECT_TRUE(is_closed_within(flood, 10));
  expect_group();
}

TEST_F(TcpMeetingOf3, StrangersThatAreSilentOrSlowAreClosedAndDelayNobody) {
  const double begin_s = now_s();
  const Socket silent = stranger(), cut = stranger(), slow = stranger();
  throw_at(cut, "STRAT");
  std::jthread drops([&] {
    for (const char byte : std::string("STRATAJ1") + std::string(40, '\0')) {
      throw_at(slow, {&byte, 1});
      if (is_closed_within(slow, 0.1)) return;
    }
    ADD_FAILURE() << "48 bytes in 4.8 s were all taken";
  });
  join(0);
  EXPECT_LT(now_s() - begin_s, 0.45);
  EXPECT_TRUE(is_closed_within(silent, 10));
  EXPECT_TRUE(is_closed_within(cut, 10));
  drops.join();
  EXPECT_LT(now_s() - begin_s, 4.5);
  expect_group();
}

TEST_F(TcpMeetingOf3, WhoKnowsOnlyASimilarSecretIsRefused) {
  const Call cases[] = {
      {.secret = "another secret, just as long"},
      {.secret = kJobSecret},
      {.secret = stores_[0]->secret_for("")},
      {.group = "even"},
      {.callee = 1},
      {.ticket = std::string(64, '0')},
      {.ticket = ""},
  };
  for (const Call& one : cases) {
    JobConnection link = call(one);
    EXPECT_FALSE(is_taken(link));
    EXPECT_TRUE(is_closed_within(link.socket, 10));
  }
  expect_group();
}

TEST_F(TcpMeetingOf3, RanksThatAreNotAwaitedAreRefused) {
  join(1);
  const JobChannel::Client others[] = {{1, 3}, {2, 3}, {3, 3}, {-1, 3}, {0, 2}, {0, 4}, {0, 0}};
  for (const auto& who : others) {
    JobConnection link = call({.who = who});
    EXPECT_FALSE(is_taken(link)) << who.rank << " of " << who.size;
  }
  expect_group();
}

// All that a rank sent is sent again, as it is: while that rank is awaited, and when it has come.
TEST_F(TcpMeetingOf3, ARecordedHandshakeIsRefused) {
  for (const bool finishes : {false, true}) {
    JobConnection link = call({});
    std::string sent(link.channel.outgoing());
    link.write();
    ASSERT_TRUE(wait_until_ready(link.socket, false, 10));
    char challenge[40];
    ASSERT_EQ(link.socket.read_some(challenge), 40u);
    link.channel.take({challenge, 40});
    sent += link.channel.outgoing();
    if (finishes) {
      EXPECT_TRUE(is_taken(link));
      taken_[0] = std::move(link.socket);
    }
    const Socket again = stranger();
    throw_at(again, sent);
    EXPECT_TRUE(is_closed_within(again, 10));
  }
  expect_group();
}

TEST_F(TcpMeetingOf3, ARankWhoseHandshakeBreaksMayCallAgain) {
  for (const bool proves : {false, true}) {
    JobConnection link = call({});
    link.write();
    if (!proves) continue;
    ASSERT_TRUE(wait_until_ready(link.socket, false, 10));
    link.socket = Socket();
  }
  expect_group();
}

class PatientTcpMeetingOf3 : public TcpMeetingOf3 {
 protected:
  PatientTcpMeetingOf3() { authenticate_s_ = 600; }
};

TEST_F(PatientTcpMeetingOf3, HundredsOfSilentConnectionsKeepNobodyOut) {
  std::vector<Socket> silent;
  for (size_t i = 0; i < 300; ++i) silent.push_back(stranger());
  join(0);
  size_t open = 0;
  for (const Socket& one : silent) open += is_closed_within(one, 1e-3) ? 0 : 1;
  EXPECT_LE(open, 64u);
  EXPECT_GT(open, 0u);
  expect_group();
  for (const Socket& one : silent) EXPECT_TRUE(is_closed_within(one, 10));
}

// Two ranks of which the test is one, without the group's own code.
class TcpMeetingOf2 : public testing::Test {
 protected:
  std::vector<Socket> meet(JobStore& store, double connect_s) const {
    return meet_by_tcp(store, {.ranks = {0, 1}, .connect_s = connect_s},
                       {.own_place = store.rank(), .is_met = [](int) { return true; }});
  }
  const JobServer server_{{.secret = kJobSecret, .size = 2}};
  JobStore first_{options_of(server_, 0, 2)}, second_{options_of(server_, 1, 2)};
};

TEST_F(TcpMeetingOf2, ARankThatDoesNotCallIsNamed) {
  first_.set("tcp/world/0/address", "nowhere ticket");
  EXPECT_FAILURE(kDeadline,
                 "connect: rank 1: group world is not connected within 0.3 s: rank 0 did not "
                 "connect to 127.0.0.1:",
                 meet(second_, 0.3));
}

TEST_F(TcpMeetingOf2, ARankThatCannotBeReachedIsNamedWithItsAddress) {
  const std::string address = address_of(listen_at({"127.0.0.1", "0"}));  // and closed again
  second_.set("tcp/world/1/address", address + " ticket");
  EXPECT_FAILURE(kDeadline, fmt::format("rank 1 at {}: cannot connect: {}", address, address),
                 meet(first_, 0.3));
  const Socket silent = listen_at({"127.0.0.1", "0"});
  second_.set("tcp/world/1/address", address_of(silent) + " ticket");
  EXPECT_FAILURE(kDeadline, fmt::format("rank 1 at {}: it does not answer", address_of(silent)),
                 meet(first_, 0.3));
}

// Who listens there instead of rank 1 must prove itself, too; when it breaks off, rank 0 tries
// again. Bytes behind the handshake are left for the transport.
TEST_F(TcpMeetingOf2, ACallerTriesUntilItsRankAnswers) {
  const Socket listener = listen_at({"127.0.0.1", "0"});
  second_.set("tcp/world/1/address", address_of(listener) + " ticket");
  Socket kept;
  const std::jthread other([&] {
    const std::string secret = second_.secret_for("tcp/world/1/ticket");
    for (const std::string& own : {std::string(), std::string("of an impostor's"), secret}) {
      ASSERT_TRUE(wait_until_ready(listener, false, 10));
      Socket socket = accept_one(listener);
      if (own.empty()) continue;
      JobConnection link = {std::move(socket), JobChannel::server(own)};
      try {
        while (wait_until_ready(link.socket, false, 10) && link.read() != 0) {
          if (link.channel.is_open()) break;
          link.write();
        }
      } catch (const Error&) {
        link.write();
        continue;
      }
      throw_at(link.socket, std::string(link.channel.outgoing()) + "data");
      kept = std::move(link.socket);
    }
  });
  const auto connections = meet(first_, 60);
  char room[64] = {};
  ASSERT_TRUE(wait_until_ready(connections[1], false, 10));
  EXPECT_EQ(connections[1].read_some(room), 4u);
  EXPECT_STREQ(room, "data");
}

}  // namespace
}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
// The handshake and the messages between a rank and the job's server, without sockets: who does not
// know the secret gets nowhere, and no byte can be changed, repeated, left out or turned back.
#include "engine/comm/job_channel.h"

#include <gtest/gtest.h>

#include "tests/comm/job_support.h"

namespace strata::comm {
namespace {

std::string take_all(JobChannel& from) {
  const std::string bytes(from.outgoing());
  from.sent(bytes.size());
  return bytes;
}

void shake_hands(JobChannel& client, JobChannel& server) {
  server.take(take_all(client));
  client.take(take_all(server));
  server.take(take_all(client));
  client.take(take_all(server));
}

struct Ends {
  JobChannel client = JobChannel::client(kJobSecret, {.rank = 2, .size = 4});
  JobChannel server = JobChannel::server(kJobSecret);
  Ends() { shake_hands(client, server); }
};

#define EXPECT_REFUSED(statement, words)                             \
  do {                                                               \
    const Failure failure = failure_of([&] { statement; });          \
    EXPECT_TRUE(failure.says(words)) << "instead: " << failure.text; \
  } while (false)

TEST(JobChannel, BothEndsOpenAndMessagesArrive) {
  Ends ends;
  ASSERT_TRUE(ends.client.is_open() && ends.server.is_open());
  EXPECT_EQ(ends.server.who().rank, 2);
  EXPECT_EQ(ends.server.who().size, 4);
  const JobMessage large = {.kind = JobMessage::Kind::kSet,
                            .request = 7,
                            .number = -3,
                            .key = std::string(kKeyBytesMax, 'k'),
                            .value = std::string(kValueBytesMax, '\0')};
  const JobMessage empty = {.kind = JobMessage::Kind::kLeft};
  ends.client.send(large);
  ends.client.send(empty);
  ends.server.send(empty);
  for (const char byte : take_all(ends.client)) ends.server.take({&byte, 1});
  ends.client.take(take_all(ends.server));
  EXPECT_EQ(ends.server.next(), large);
  EXPECT_EQ(ends.server.next(), empty);
  EXPECT_EQ(ends.server.next(), std::nullopt);
  EXPECT_EQ(ends.client.next(), empty);
}

TEST(JobChannel, TheSecretDoesNotTravelAndProofsAreFresh) {
  std::string wire[2];
  for (std::string& bytes : wire) {
    auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
    auto server = JobChannel::server(kJobSecret);
    for (int i = 0; i < 4; ++i) {
      const std::string item = take_all(i % 2 == 0 ? client : server);
      (i % 2 == 0 ? server : client).take(item);
      bytes += item;
    }
    EXPECT_EQ(bytes.find(kJobSecret), bytes.npos);
  }
  // Nonce of the client, nonce of the server, proof of the client, proof of the server.
  for (const size_t begin : {16, 56, 88, 121}) {
    EXPECT_EQ(wire[0].size(), 153u);
    EXPECT_NE(wire[0].substr(begin, 32), wire[1].substr(begin, 32)) << begin;
  }
}

TEST(JobChannel, AnotherSecretIsRefusedByBothEnds) {
  auto client = JobChannel::client("another secret, as long", {.rank = 0, .size = 1});
  auto server = JobChannel::server(kJobSecret);
  server.take(take_all(client));
  client.take(take_all(server));
  EXPECT_REFUSED(server.take(take_all(client)), "the client has another secret");
  EXPECT_FALSE(server.is_open());
  EXPECT_REFUSED(client.take(take_all(server)), "the server has another one");
  EXPECT_FALSE(client.is_open());
  EXPECT_REFUSED(server.take("x"), "bytes came after the end");
}

// It answers a proof that it cannot check.
TEST(JobChannel, AServerThatDoesNotKnowTheSecretIsRefused) {
  auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
  auto pretender = JobChannel::server("another secret, as long");
  pretender.take(take_all(client));
  client.take(take_all(pretender));
  const std::string verdict = '\1' + std::string(sizeof(Digest), 'p');
  EXPECT_REFUSED(client.take(verdict), "the server does not know it");
}

// Sends the client's own proof back to it, which has the right secret in it.
TEST(JobChannel, AProofThatIsTurnedBackIsRefused) {
  auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
  const std::string hello = take_all(client);
  auto pretender = JobChannel::server("another secret, as long");
  pretender.take(hello);
  client.take(take_all(pretender));
  EXPECT_REFUSED(client.take('\1' + take_all(client)), "the server does not know it");
}

TEST(JobChannel, ARecordedHandshakeIsRefused) {
  auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
  auto server = JobChannel::server(kJobSecret);
  const std::string hello = take_all(client);
  server.take(hello);
  client.take(take_all(server));
  const std::string proof = take_all(client);
  server.take(proof);
  ASSERT_TRUE(server.is_open());

  auto later = JobChannel::server(kJobSecret);
  later.take(hello);
  EXPECT_REFUSED(later.take(proof), "the client has another secret");
}

// The proof covers what the client says about itself.
TEST(JobChannel, ARankThatIsChangedOnTheWayIsRefused) {
  auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 2});
  auto server = JobChannel::server(kJobSecret);
  std::string hello = take_all(client);
  hello[8] = 1;
  server.take(hello);
  client.take(take_all(server));
  EXPECT_REFUSED(server.take(take_all(client)), "the client has another secret");
}

TEST(JobChannel, EveryChangedByteOfAMessageIsRefused) {
  Ends ends;
  ends.client.send({.kind = JobMessage::Kind::kSet, .key = "key", .value = "value"});
  const std::string bytes = take_all(ends.client);
  for (size_t i = 0; i < bytes.size(); ++i) {
    JobChannel server = ends.server;
    std::string changed = bytes;
    changed[i] ^= 1;
    const std::string text = failure_of([&] { server.take(changed); }).text;
    // A length that grew by a few bytes waits for them; what comes next is refused.
    const std::string later = failure_of([&] { server.take(std::string(1 << 24, 'x')); }).text;
    EXPECT_FALSE(text.empty() && later.empty()) << i;
    EXPECT_EQ(server.next(), std::nullopt) << i;
  }
}

TEST(JobChannel, RepeatedMissingAndReturnedMessagesAreRefused) {
  Ends ends;
  ends.client.send({.kind = JobMessage::Kind::kAdd, .number = 1, .key = "n"});
  const std::string first = take_all(ends.client);
  ends.client.send({.kind = JobMessage::Kind::kAdd, .number = 2, .key = "n"});
  const std::string second = take_all(ends.client);

  JobChannel repeated = ends.server;
  repeated.take(first);
  EXPECT_REFUSED(repeated.take(first), "repeated or missing");
  JobChannel missing = ends.server;
  EXPECT_REFUSED(missing.take(second), "repeated or missing");
  EXPECT_REFUSED(ends.client.take(first), "wrong MAC");

  Ends others;
  EXPECT_REFUSED(others.server.take(first), "wrong MAC");
}

TEST(JobChannel, LengthsBeyondTheLimitAreRefusedBeforeTheBytesCome) {
  for (const std::string& length : {std::string("\xff\xff\xff\xff"), std::string("\0\0\0\x10", 4),
                                    std::string("\0\0\0\0", 4), std::string("\x0e\0\0\0", 4)}) {
    Ends ends;
    EXPECT_REFUSED(ends.server.take(length + std::string(8, '\0')), "claims");
  }
}

TEST(JobChannel, StrangersAreRefusedAtTheirFirstItem) {
  auto server = JobChannel::server(kJobSecret);
  EXPECT_REFUSED(server.take("GET / HTTP/1.1\r\nHost: 127.0.0.1:29500\r\nAccept: */*\r\n\r\n"),
                 "does not speak this protocol");
  auto client = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
  EXPECT_REFUSED(client.take("220 mail.example ESMTP; please say who you are first"),
                 "does not speak this protocol");
  // More than its hello, before it knows the challenge.
  auto eager = JobChannel::server(kJobSecret);
  auto honest = JobChannel::client(kJobSecret, {.rank = 0, .size = 1});
  EXPECT_REFUSED(eager.take(take_all(honest) + std::string(4096, 'x')), "another secret");
}

TEST(JobChannel, BodiesThatAreNoMessagesAreRefused) {
  const JobMessage message = {.kind = JobMessage::Kind::kSet, .key = "key", .value = "value"};
  const std::string body = encode(message);
  EXPECT_EQ(decode(body), message);
  EXPECT_REFUSED(decode(body.substr(0, 14)), "too short");
  EXPECT_REFUSED(decode('\x7f' + body.substr(1)), "unknown kind 127");
  std::string long_key = body;
  long_key[13] = 9;  // of the 8 bytes that follow
  EXPECT_REFUSED(decode(long_key), "wrong length");
}

TEST(JobChannel, ASecretIsAtLeastSixteenBytes) {
  EXPECT_NO_THROW(check_secret("0123456789abcdef"));
  EXPECT_REFUSED(check_secret("0123456789abcde"), "it has 15 bytes, at least 16");
  EXPECT_REFUSED(check_secret(""), "it has 0 bytes");
}

}  // namespace
}  // namespace strata::comm

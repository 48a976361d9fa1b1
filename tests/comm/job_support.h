// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/job_connection.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"

namespace strata::comm {

inline const std::string kJobSecret = "sixteen bytes or more";

inline JobStoreOptions options_of(const JobServer& server, int rank, int size) {
  return {.address = server.address(), .secret = kJobSecret, .rank = rank, .size = size};
}

struct Failure {
  ErrorCode code = ErrorCode::kUsage;
  std::string text;
  bool says(const std::string& words) const { return text.find(words) != text.npos; }
};

inline Failure failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

#define EXPECT_FAILURE(wanted, words, statement)                     \
  do {                                                               \
    const Failure failure = failure_of([&] { statement; });          \
    EXPECT_EQ(failure.code, ErrorCode::wanted) << failure.text;      \
    EXPECT_TRUE(failure.says(words)) << "instead: " << failure.text; \
  } while (false)

inline Socket stranger_at(const std::string& address) {
  return connect_to(parse_endpoint(address), 10);
}
inline Socket stranger_at(const JobServer& server) {
  return stranger_at(server.address());
}

// Sends bytes as far as the other end takes them.
inline void throw_at(const Socket& socket, const std::string& bytes) {
  try {
    wait_until_ready(socket, true, 10);
    socket.write_some(bytes);
  } catch (const Error&) {
  }
}

// True when the other end closes the connection in that time.
inline bool is_closed_within(const Socket& socket, double deadline_s) {
  const double end_s = now_s() + deadline_s;
  char room[256];
  try {
    while (wait_until_ready(socket, false, end_s - now_s())) {
      if (socket.read_some(room) == 0) return true;
    }
  } catch (const Error&) {
    return true;  // by a reset
  }
  return false;
}

// A rank whose bytes the test can touch.
struct BareRank {
  JobConnection link;
  std::string sent;  // all that went to the server

  BareRank(const std::string& address, int rank, int size)
      : link{stranger_at(address), JobChannel::client(kJobSecret, {.rank = rank, .size = size})} {
    hear();
  }
  BareRank(const JobServer& server, int rank, int size) : BareRank(server.address(), rank, size) {}
  // The next message; none when the connection is closed.
  std::optional<JobMessage> hear() {
    for (;;) {
      sent += link.channel.outgoing();
      link.write();
      if (auto message = link.channel.next()) return message;
      if (!wait_until_ready(link.socket, false, 10) || link.read() == 0) return std::nullopt;
    }
  }
  std::string sealed(const JobMessage& message) {
    link.channel.send(message);
    const std::string bytes(link.channel.outgoing());
    link.channel.sent(bytes.size());
    return bytes;
  }
};

inline const JobMessage kSetOfK = {.kind = JobMessage::Kind::kSet, .key = "k", .value = "v"};

}  // namespace strata::comm

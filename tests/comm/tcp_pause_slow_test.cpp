// SPDX-License-Identifier: Apache-2.0
// A rank may be busy or stopped for longer than the 6 s after which the kernel gives up a
// connection of the job's store: who sends to it waits, as long as the job lives.
#include <gtest/gtest.h>

#include <thread>

#include "engine/comm/tcp_transport.h"
#include "tests/comm/tcp_support.h"

namespace strata::comm {
namespace {

TEST(TcpPause, ARankMayLeaveBytesUnreadForLong) {
  auto connections = connected_ranks(2);
  TcpTransport first(std::move(connections[0])), second(std::move(connections[1]));
  const std::string out(64 << 20, 'x');
  std::string in(out.size(), '\0');
  const auto send = first.send(1, out.data(), std::ssize(out));
  std::jthread sender([&] { EXPECT_NO_THROW(EXPECT_TRUE(send->wait(std::chrono::seconds(120)))); });
  std::this_thread::sleep_for(std::chrono::seconds(15));
  const auto receive = second.receive(0, in.data(), std::ssize(in));
  ASSERT_NO_THROW(EXPECT_TRUE(receive->wait(std::chrono::seconds(120))));
  sender.join();
  EXPECT_TRUE(in == out);
}

}  // namespace
}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/comm/tcp_socket.h"

namespace strata::comm {

// The two ends of a connection over the loopback interface.
inline std::pair<Socket, Socket> connected_pair() {
  const Socket listener = listen_at({"127.0.0.1", "0"});
  Socket near_end = connect_to(parse_endpoint(address_of(listener)), 10);
  EXPECT_TRUE(wait_until_ready(listener, false, 10));
  return {std::move(near_end), accept_one(listener)};
}

// The connections of each rank with each other, by rank.
inline std::vector<std::vector<Socket>> connected_ranks(size_t count) {
  std::vector<std::vector<Socket>> ranks(count);
  for (auto& rank : ranks) rank.resize(count);
  for (size_t low = 0; low < count; ++low) {
    for (size_t high = low + 1; high < count; ++high) {
      std::tie(ranks[low][high], ranks[high][low]) = connected_pair();
    }
  }
  return ranks;
}

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/job_connection.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/base/error.h"

namespace strata::comm {

std::optional<size_t> JobConnection::read() {
  std::array<char, 65536> room;
  const auto count = socket.read_some(room);
  if (count) channel.take({room.data(), *count});
  return count;
}

bool JobConnection::shake_hands() {
  std::array<char, 128> room;
  for (write(); !channel.is_open(); write()) {
    const auto count =
        socket.read_some(std::span(room).first(std::min(channel.missing(), room.size())));
    if (!count) return false;
    if (*count == 0) throw Error(ErrorCode::kPeer, "it closed the connection");
    channel.take({room.data(), *count});
  }
  return channel.outgoing().empty();
}

void JobConnection::write() {
  while (!channel.outgoing().empty()) {
    const auto count = socket.write_some(channel.outgoing());
    if (!count) return;
    channel.sent(*count);
  }
}

}  // namespace strata::comm

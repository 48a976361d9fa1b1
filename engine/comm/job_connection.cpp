// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/job_connection.h"

#include <array>

namespace strata::comm {

std::optional<size_t> JobConnection::read() {
  std::array<char, 65536> room;
  const auto count = socket.read_some(room);
  if (count) channel.take({room.data(), *count});
  return count;
}

void JobConnection::write() {
  while (!channel.outgoing().empty()) {
    const auto count = socket.write_some(channel.outgoing());
    if (!count) return;
    channel.sent(*count);
  }
}

}  // namespace strata::comm

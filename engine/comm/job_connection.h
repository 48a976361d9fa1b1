// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/comm/job_channel.h"
#include "engine/comm/tcp_socket.h"

namespace strata::comm {

// A channel over a socket. Threads: one at a time.
struct JobConnection {
  Socket socket;
  JobChannel channel;

  // Gives what has come, up to 64 KiB, to the channel. Returns how many bytes: 0 when the other end
  // has closed the connection, nothing when none has come. Failure: that of Socket::read_some and
  // JobChannel::take.
  std::optional<size_t> read();
  // Goes on with the handshake, and reads nothing that comes behind it. Returns whether the channel
  // is open and all is written. Failure: the same, and Error (kPeer) when the other end closes.
  bool shake_hands();
  // Writes what the socket takes without waiting; the rest stays. Failure: that of
  // Socket::write_some.
  void write();
};

}  // namespace strata::comm

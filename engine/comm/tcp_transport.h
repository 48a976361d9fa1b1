// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/tcp_socket.h"
#include "engine/comm/transport.h"

namespace strata::comm {

// Moves bytes between ranks by a connection with each. No thread is needed: whoever waits for one
// transfer moves the bytes of all, and the kernel those that it has room for meanwhile. Bytes go
// from and to the caller's memory without a copy of this class.
//
// On the wire a transfer is its size, 8 bytes, and its bytes. One of another size than the receiver
// expects is an error, and so is all that follows it from that rank. Bytes are neither encrypted
// nor authenticated. Threads and failure: those of Transport; a failure is of one rank.
class TcpTransport final : public Transport {
 public:
  // By place in the group; none for this rank and for those that are not to be reached.
  explicit TcpTransport(std::vector<Socket> connections);

  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override;
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) override;
  bool advance() override;
  void close() override;

 private:
  using Clock = std::chrono::steady_clock;
  class OwnTransfer;
  // One direction of a connection.
  struct Way {
    const Socket* socket;
    bool sends;
    std::deque<OwnTransfer*> transfers = {};  // under way, in order
    bool is_ready = true;                     // the socket may take or have bytes
    std::string failure = {};                 // why no more bytes can move
  };
  struct Peer {
    explicit Peer(Socket connection) : socket(std::move(connection)) {}
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    Socket socket;
    Way out = {&socket, true};
    Way in = {&socket, false};
    int wake_bytes = 1;  // for which the socket counts as one with bytes to read
  };

  std::unique_ptr<Transfer> begin(Way& way, void* data, int64_t bytes);
  static bool step(Way& way);
  bool step_all();
  static void wake_for(Peer& peer, int bytes);
  void poll_until(Clock::time_point end);
  bool drive(const OwnTransfer& awaited, Clock::time_point end);
  bool has_transfers() const;

  std::deque<Peer> peers_;     // by place; constant after construction, as their sockets are
  std::vector<pollfd> polls_;  // the wake-up's, then one for each peer
  const WakeUp wake_;
  std::atomic<bool> closed_ = false;
};

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/tcp_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>
#include <utility>

namespace strata::comm {
namespace {

constexpr int64_t kStepBytes = int64_t{1} << 20;    // of one call of the kernel
constexpr int64_t kWakeBytes = int64_t{128} << 10;  // of a transfer, for which a wait wakes
constexpr double kPollS = 3600;                     // the longest

}  // namespace

class TcpTransport::OwnTransfer final : public Transfer {
 public:
  OwnTransfer(TcpTransport& transport, Way& way, void* data, int64_t bytes)
      : transport_(transport),
        way_(way),
        data_(static_cast<char*>(data)),
        bytes_(bytes),
        header_(way.sends ? bytes : 0) {}
  ~OwnTransfer() override {
    // What follows would be taken for what is missing.
    if (std::erase(way_.transfers, this) > 0) way_.failure = "a transfer before was given up";
  }

  bool wait(std::chrono::milliseconds limit) override {
    return is_done() || transport_.drive(*this, Clock::now() + limit);
  }
  void interrupt() override {
    interrupted_ = true;
    transport_.wake_.set();
  }

  bool is_done() const { return moved_ == kHeaderBytes + bytes_; }
  bool is_interrupted() const { return interrupted_; }
  const std::string& failure() const { return way_.failure; }

  // How many bytes are worth a wake: a header's at once, as it may say another size.
  int64_t next_wake_bytes() const {
    const int64_t header_left = kHeaderBytes - moved_;
    return header_left > 0 ? header_left : std::min(kHeaderBytes + bytes_ - moved_, kWakeBytes);
  }
  // What one step is to move: the rest of the header, and bytes behind it.
  std::array<iovec, 2> next_parts() {
    const int64_t header_left = std::max<int64_t>(kHeaderBytes - moved_, 0);
    const int64_t begin = std::max<int64_t>(moved_ - kHeaderBytes, 0);
    char* const header_end = reinterpret_cast<char*>(&header_) + kHeaderBytes;
    return {iovec{header_end - header_left, static_cast<size_t>(header_left)},
            iovec{data_ + begin, static_cast<size_t>(std::min(bytes_ - begin, kStepBytes))}};
  }
  void add_moved(size_t count) {
    const int64_t moved = moved_ + static_cast<int64_t>(count);
    if (moved >= kHeaderBytes && header_ != bytes_) {
      throw std::runtime_error(
          fmt::format("it sent {} bytes where {} are due (all ranks must make the same calls in "
                      "the same order)",
                      header_, bytes_));
    }
    moved_ = moved;
  }

 private:
  static constexpr int64_t kHeaderBytes = sizeof(int64_t);

  TcpTransport& transport_;
  Way& way_;
  char* const data_;
  const int64_t bytes_;
  int64_t header_;  // the size that the sender says; little-endian, as this machine
  int64_t moved_ = 0;
  std::atomic<bool> interrupted_ = false;
};

TcpTransport::TcpTransport(std::vector<Socket> connections) : polls_(connections.size() + 1) {
  for (Socket& connection : connections) {
    if (connection.fd() >= 0) connection.allow_pauses();
    peers_.emplace_back(std::move(connection));
  }
}

std::unique_ptr<Transport::Transfer> TcpTransport::send(int peer, const void* data, int64_t bytes) {
  return begin(peers_[static_cast<size_t>(peer)].out, const_cast<void*>(data), bytes);
}
std::unique_ptr<Transport::Transfer> TcpTransport::receive(int peer, void* data, int64_t bytes) {
  return begin(peers_[static_cast<size_t>(peer)].in, data, bytes);
}

std::unique_ptr<Transport::Transfer> TcpTransport::begin(Way& way, void* data, int64_t bytes) {
  if (closed_) throw std::runtime_error("it is closed");
  if (!way.failure.empty()) throw std::runtime_error(way.failure);
  auto transfer = std::make_unique<OwnTransfer>(*this, way, data, bytes);
  way.transfers.push_back(transfer.get());
  if (way.sends) step(way);
  return transfer;
}

// Moves bytes of the first transfer by one call of the kernel. Returns whether another may follow.
bool TcpTransport::step(Way& way) {
  if (way.transfers.empty() || !way.is_ready) return false;
  OwnTransfer& first = *way.transfers.front();
  try {
    auto parts = first.next_parts();
    const size_t wanted = parts[0].iov_len + parts[1].iov_len;
    const auto count = way.sends ? way.socket->write_parts(parts) : way.socket->read_parts(parts);
    way.is_ready = count == wanted;
    if (!count) return false;
    first.add_moved(*count);
    if (first.is_done()) way.transfers.pop_front();
  } catch (const std::exception& error) {
    way.failure = error.what();
    way.transfers.clear();
  }
  return true;
}

bool TcpTransport::step_all() {
  bool moved = false;
  for (Peer& peer : peers_) {
    moved |= step(peer.in);
    moved |= step(peer.out);
  }
  return moved;
}

bool TcpTransport::has_transfers() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    return !peer.out.transfers.empty() || !peer.in.transfers.empty();
  });
}

// Fewer wakes leave more of a core to whoever shares it.
void TcpTransport::wake_for(Peer& peer, int bytes) {
  if (bytes == peer.wake_bytes) return;
  peer.socket.wake_at(bytes);
  peer.wake_bytes = bytes;
}

// Returns when a socket that a transfer waits for is ready, or when another thread asks for it.
void TcpTransport::poll_until(Clock::time_point end) {
  polls_[0] = polled(wake_.fd(), true, false);
  for (size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    const bool reads = !peer.in.transfers.empty(), writes = !peer.out.transfers.empty();
    if (reads) wake_for(peer, static_cast<int>(peer.in.transfers.front()->next_wake_bytes()));
    polls_[p + 1] = polled(reads || writes ? peer.socket.fd() : -1, reads, writes);
  }
  const std::chrono::duration<double> left = end - Clock::now();
  const double left_ms = std::ceil(std::clamp(left.count(), 0.0, kPollS) * 1000);
  if (::poll(polls_.data(), polls_.size(), static_cast<int>(left_ms)) <= 0) return;
  if (polls_[0].revents != 0) wake_.clear();
  for (size_t p = 0; p < peers_.size(); ++p) {
    const int events = polls_[p + 1].revents;
    if ((events & ~POLLOUT) != 0) peers_[p].in.is_ready = true;
    if ((events & ~POLLIN) != 0) peers_[p].out.is_ready = true;
  }
}

bool TcpTransport::drive(const OwnTransfer& awaited, Clock::time_point end) {
  while (true) {
    const bool moved = step_all();
    if (awaited.is_done()) return true;
    if (awaited.is_interrupted()) return false;
    if (closed_) throw std::runtime_error("it is closed");
    if (!awaited.failure().empty()) throw std::runtime_error(awaited.failure());
    if (moved) continue;
    if (Clock::now() >= end) throw std::runtime_error("nothing came in time");
    poll_until(end);
  }
}

bool TcpTransport::advance() {
  if (!has_transfers()) return false;
  poll_until(Clock::now());
  step_all();
  return has_transfers();
}

void TcpTransport::close() {
  closed_ = true;
  for (const Peer& peer : peers_) peer.socket.shut();
  wake_.set();
}

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace strata::comm {

// Owns a descriptor that does not block and that programs started later do not inherit.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }

  // How many bytes came or went; nothing when the call would have to wait. When the other end has
  // closed the connection, 0 bytes come and none go. Failure: Error (kPeer), also when the other
  // machine's kernel answers nothing for 6 s. A write causes no SIGPIPE.
  std::optional<size_t> read_some(std::span<char> room) const;
  std::optional<size_t> write_some(std::string_view bytes) const;
  // The same for bytes in several places, and a connection that the other end closed is an Error.
  std::optional<size_t> read_parts(std::span<iovec> parts) const;
  std::optional<size_t> write_parts(std::span<iovec> parts) const;

  // The other end may leave bytes unread for as long as it likes; its machine still must answer
  // where this end waits for bytes.
  void allow_pauses() const;
  // poll() finds nothing to read before so many bytes have come, or the connection has ended.
  void wake_at(int bytes) const;
  // Both directions end, also for another thread that uses the socket.
  void shut() const;

 private:
  int fd_;
};

// HOST:PORT; an IPv6 address is in brackets, "[::1]:29500". Port 0 lets the system choose.
struct Endpoint {
  std::string host;
  std::string port;
};
Endpoint parse_endpoint(const std::string& text);  // throws Error (kConfig)

// Throws Error (kConfig) when nothing can listen there, Error (kPeer) when the system's name
// service does not answer now.
Socket listen_at(const Endpoint& endpoint);
std::string address_of(const Socket& socket);  // its own: "127.0.0.1:40123", "[::1]:40123"
// The address of an interface of this machine, "eth0": of its IPv4 addresses the first, else of its
// IPv6 addresses that other machines reach. A text that is not the name of one stays as it is.
std::string host_of(const std::string& interface);
// The other way: the name of the interface that has an address, "127.0.0.1"; "" where none has it.
// A name stays as it is.
std::string interface_of(const std::string& host);
// The next connection that waits; a closed one when nobody waits, or there is no descriptor for it.
Socket accept_one(const Socket& listener);
// A connection to one of the addresses that the host has. Failure: Error (kConfig) when the host
// has none, Error (kIo) without a descriptor, else Error (kPeer), also when the name service does
// not answer now. Resolving the name takes as long as the system's resolver does.
Socket connect_to(const Endpoint& endpoint, double deadline_s);

// For poll(); a descriptor of -1 is left out.
inline pollfd polled(int fd, bool to_read, bool to_write) {
  const int events = (to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0);
  return {.fd = fd, .events = static_cast<short>(events), .revents = 0};
}

// False when the socket is not ready within that time.
bool wait_until_ready(const Socket& socket, bool to_write, double deadline_s);

// Ends another thread's poll().
class WakeUp {
 public:
  WakeUp();  // throws Error (kIo)
  int fd() const { return event_.fd(); }
  void set() const;
  void clear() const;

 private:
  Socket event_;
};

}  // namespace strata::comm

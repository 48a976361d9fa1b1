// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/tcp_socket.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/base/advice.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace strata::comm {
namespace {

constexpr int kBacklog = 1024;
constexpr double kOneAddressS = 5;  // then the next address of a host is tried
constexpr int kUnansweredS = 6;     // in which the other machine's kernel says that bytes came
constexpr int kProbeS = 1;          // of silence, after which it is asked

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints = {};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &found);
  if (error == EAI_SYSTEM && lacks_descriptors(errno)) {
    throw system_error(ErrorCode::kIo, "cannot find the host: " + endpoint.host, errno);
  }
  if (error != 0) {
    const bool may_pass = error == EAI_AGAIN || error == EAI_SYSTEM;
    throw Error(may_pass ? ErrorCode::kPeer : ErrorCode::kConfig,
                fmt::format("cannot find the host: {}: {} (look at the name, and at the system's "
                            "name service)",
                            endpoint.host, ::gai_strerror(error)));
  }
  return {found, &::freeaddrinfo};
}

Socket socket_for(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol));
}

void set_option(const Socket& socket, int level, int name, int value = 1) {
  ::setsockopt(socket.fd(), level, name, &value, sizeof(value));
}

// Probes of the kernel make an end that sends nothing notice too that the other is cut off.
void set_up(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredS * 1000);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kProbeS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
}

[[noreturn]] void throw_broken(int error) {
  if (error == ETIMEDOUT) {
    throw Error(ErrorCode::kPeer,
                fmt::format("its machine did not answer for {} s: it is off, or cut off from the "
                            "network",
                            kUnansweredS));
  }
  throw system_error(ErrorCode::kPeer, "connection", error);
}

[[noreturn]] void throw_closed() {
  throw Error(ErrorCode::kPeer, "the other end closed it");
}

Endpoint endpoint_of(const sockaddr& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const socklen_t length =
      address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int error = ::getnameinfo(&address, length, host, sizeof(host), port, sizeof(port),
                                  NI_NUMERICHOST | NI_NUMERICSERV);
  if (error == 0) return {host, port};
  throw Error(ErrorCode::kIo, fmt::format("cannot read the address of a socket: {} (look at this "
                                          "system's network)",
                                          ::gai_strerror(error)));
}

bool is_link_local(const sockaddr& address) {
  if (address.sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool would_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool is_closed(int error) {
  return error == ECONNRESET || error == EPIPE;
}

msghdr message_of(std::span<iovec> parts) {
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

std::optional<size_t> count_of(ssize_t result) {
  if (result >= 0) return static_cast<size_t>(result);
  if (would_wait(errno)) return std::nullopt;
  if (is_closed(errno)) throw_closed();
  throw_broken(errno);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<size_t> Socket::read_some(std::span<char> room) const {
  const ssize_t count = ::recv(fd_, room.data(), room.size(), 0);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_wait(errno)) return std::nullopt;
  if (is_closed(errno)) return 0;
  throw_broken(errno);
}

std::optional<size_t> Socket::write_some(std::string_view bytes) const {
  const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_wait(errno) || is_closed(errno)) return std::nullopt;
  throw_broken(errno);
}

std::optional<size_t> Socket::read_parts(std::span<iovec> parts) const {
  msghdr message = message_of(parts);
  const ssize_t count = ::recvmsg(fd_, &message, 0);
  if (count == 0) throw_closed();
  return count_of(count);
}

std::optional<size_t> Socket::write_parts(std::span<iovec> parts) const {
  const msghdr message = message_of(parts);
  return count_of(::sendmsg(fd_, &message, MSG_NOSIGNAL));
}

// With TCP_USER_TIMEOUT the kernel also gives up a connection whose other end is there and does not
// read. Without it, only probes of a connection that has nothing to send notice a lost machine.
void Socket::allow_pauses() const {
  set_option(*this, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  set_option(*this, IPPROTO_TCP, TCP_KEEPCNT, kUnansweredS / kProbeS);
}

void Socket::wake_at(int bytes) const {
  set_option(*this, SOL_SOCKET, SO_RCVLOWAT, bytes);
}

void Socket::shut() const {
  static_cast<void>(::shutdown(fd_, SHUT_RDWR));
}

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string::npos) {
    endpoint = {text.substr(0, colon), text.substr(colon + 1)};
    std::string& host = endpoint.host;
    const bool bracketed = host.starts_with('[') && host.ends_with(']');
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (!bracketed && host.find(':') != std::string::npos) host.clear();
  }
  uint16_t port = 0;
  const char* end = endpoint.port.data() + endpoint.port.size();
  const auto [parsed, error] = std::from_chars(endpoint.port.data(), end, port);
  if (endpoint.host.empty() || error != std::errc() || parsed != end) {
    throw Error(ErrorCode::kConfig,
                fmt::format("job store: address: {}: it is not HOST:PORT (for example "
                            "127.0.0.1:29500 or [::1]:29500)",
                            text));
  }
  return endpoint;
}

Socket listen_at(const Endpoint& endpoint) {
  const Addresses addresses = resolve(endpoint, AI_PASSIVE);
  Socket listener = socket_for(*addresses);
  if (listener.fd() >= 0) set_option(listener, SOL_SOCKET, SO_REUSEADDR);
  if (listener.fd() < 0 || ::bind(listener.fd(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(listener.fd(), kBacklog) != 0) {
    throw system_error(ErrorCode::kConfig,
                       fmt::format("cannot listen: {}:{}", endpoint.host, endpoint.port), errno,
                       "give an address of this machine and a port that is free, or port 0");
  }
  return listener;
}

std::string address_of(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(socket.fd(), generic, &length) != 0) {
    throw system_error(ErrorCode::kIo, "cannot read the address of a socket", errno);
  }
  const auto [host, port] = endpoint_of(*generic);
  const bool bracketed = address.ss_family == AF_INET6;
  return bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

namespace {

// The first IPv4 address of this machine for which `fits` says so, else the first IPv6 address that
// other machines reach. Both are empty where there is none.
struct InterfaceAddress {
  std::string name, host;
};
template <typename Fits>
InterfaceAddress find_interface(const Fits& fits) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw system_error(ErrorCode::kIo, "cannot list interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
      const bool is_one = one->ifa_addr != nullptr && one->ifa_addr->sa_family == family;
      if (!is_one || is_link_local(*one->ifa_addr)) continue;
      const InterfaceAddress found = {one->ifa_name, endpoint_of(*one->ifa_addr).host};
      if (fits(found)) return found;
    }
  }
  return {};
}

}  // namespace

std::string interface_of(const std::string& host) {
  if (::if_nametoindex(host.c_str()) != 0) return host;
  return find_interface([&](const InterfaceAddress& one) { return one.host == host; }).name;
}

std::string host_of(const std::string& interface) {
  if (::if_nametoindex(interface.c_str()) == 0) return interface;
  const InterfaceAddress found =
      find_interface([&](const InterfaceAddress& one) { return one.name == interface; });
  if (!found.host.empty()) return found.host;
  throw Error(ErrorCode::kConfig,
              fmt::format("interface: {}: it has no address (give another, or an address of this "
                          "machine)",
                          interface));
}

Socket accept_one(const Socket& listener) {
  Socket accepted(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.fd() >= 0) set_up(accepted);
  return accepted;
}

Socket connect_to(const Endpoint& endpoint, double deadline_s) {
  const double end_s = now_s() + deadline_s;
  const Addresses addresses = resolve(endpoint, 0);
  int error = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket = socket_for(*one);
    error = socket.fd() < 0 ? errno : 0;
    if (error == 0 && ::connect(socket.fd(), one->ai_addr, one->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof(error);
      error = ETIMEDOUT;
      if (wait_until_ready(socket, true, std::min(end_s - now_s(), kOneAddressS))) {
        ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error != 0) continue;
    set_up(socket);
    return socket;
  }
  throw system_error(lacks_descriptors(error) ? ErrorCode::kIo : ErrorCode::kPeer,
                     fmt::format("cannot connect: {}:{}", endpoint.host, endpoint.port), error);
}

bool wait_until_ready(const Socket& socket, bool to_write, double deadline_s) {
  const double end_s = now_s() + deadline_s;
  pollfd one = polled(socket.fd(), !to_write, to_write);
  for (double left_s = deadline_s; left_s > 0; left_s = end_s - now_s()) {
    const double longest_s = std::min(left_s, 3600.0);
    if (::poll(&one, 1, static_cast<int>(std::ceil(longest_s * 1000))) > 0) return true;
  }
  return false;
}

WakeUp::WakeUp() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_.fd() < 0) {
    throw system_error(ErrorCode::kIo, "cannot make an eventfd", errno,
                       "raise the limit of open files: ulimit -n");
  }
}

void WakeUp::set() const {
  // It fails only when the counter is full, and then the thread wakes anyway.
  static_cast<void>(::eventfd_write(event_.fd(), 1));
}

void WakeUp::clear() const {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(event_.fd(), &count));
}

}  // namespace strata::comm

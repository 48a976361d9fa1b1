// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group_gloo.h"

#include <fmt/core.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/exchange_group.h"
#include "engine/comm/no_pipe_signal.h"
#include "engine/comm/node_transport.h"

namespace strata::comm {
namespace {

using Buffer = gloo::transport::UnboundBuffer;
using Milliseconds = std::chrono::milliseconds;

std::string key_of(const ExchangeOptions& options, int group_rank) {
  return fmt::format("gloo/{}/{}/address", options.name, group_rank);
}

class GlooTransfer final : public Transport::Transfer {
 public:
  GlooTransfer(std::unique_ptr<Buffer> buffer, bool sends)
      : buffer_(std::move(buffer)), sends_(sends) {}

  bool wait(Milliseconds limit) override {
    return sends_ ? buffer_->waitSend(limit) : buffer_->waitRecv(limit);
  }
  void interrupt() override {
    buffer_->abortWaitRecv();
    buffer_->abortWaitSend();
  }

 private:
  const std::unique_ptr<Buffer> buffer_;
  const bool sends_;
};

// What other ranks need to connect. Behind a socket's address Gloo leaves bytes of this process's
// memory as they were.
std::vector<char> bytes_of(const gloo::transport::Address& address) {
  using gloo::transport::tcp::Address;
  const Address given(address.bytes());
  const sockaddr_storage& from = given.getSockaddr();
  sockaddr_storage own = {};
  std::memcpy(&own, &from, from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return Address(own, given.getSeq()).bytes();
}

// Connections of each rank with each other.
class Mesh final : public gloo::Context, public Transport {
 public:
  Mesh(int own_rank, int count)
      : gloo::Context(own_rank, count),
        sent_(static_cast<size_t>(count), 0),
        received_(static_cast<size_t>(count), 0) {}

  // Ranks exchange the addresses of their ends by the store. Each has one for every other rank, in
  // rank order. Not inlined: the thread sanitizer knows Gloo's thread by the call of this function.
  [[gnu::noinline]] void connect(JobStore& store, const ExchangeOptions& options,
                                 const std::string& address) {
    const double end_s = now_s() + options.connect_s;
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(
        std::chrono::ceil<Milliseconds>(std::chrono::duration<double>(options.connect_s)));
    std::string addresses;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const auto own = bytes_of(transportContext_->createPair(r)->address());
      addresses.append(own.begin(), own.end());
    }
    store.set(key_of(options, rank), addresses);
    // A pair that is closed no longer waits for its other end.
    const JobStore::OnStop guard(store, [this] { close(); }, {});
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const std::string theirs =
          store.get(key_of(options, r), end_s - now_s(), options.ranks[static_cast<size_t>(r)]);
      const size_t bytes = theirs.size() / static_cast<size_t>(size - 1);
      const size_t place = static_cast<size_t>(rank < r ? rank : rank - 1);
      const std::string ours = theirs.substr(place * bytes, bytes);
      getPair(r)->connect({ours.begin(), ours.end()});
      store.throw_if_stopped("connect");
    }
  }

  // The k-th from a rank to another has slot k on both sides.
  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override {
    auto buffer = createUnboundBuffer(const_cast<void*>(data), static_cast<size_t>(bytes));
    buffer->send(peer, sent_[static_cast<size_t>(peer)]++);
    return std::make_unique<GlooTransfer>(std::move(buffer), true);
  }
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) override {
    auto buffer = createUnboundBuffer(data, static_cast<size_t>(bytes));
    buffer->recv(peer, received_[static_cast<size_t>(peer)]++);
    return std::make_unique<GlooTransfer>(std::move(buffer), false);
  }

  void close() override {
    if (transportContext_) closeConnections();
  }

 private:
  std::vector<uint64_t> sent_, received_;  // transfers to and from each rank
};

std::unique_ptr<Transport> make_mesh(JobStore& store, const ExchangeOptions& options, int rank,
                                     const std::string& address) {
  auto mesh = std::make_unique<Mesh>(rank, static_cast<int>(options.ranks.size()));
  try {
    mesh->connect(store, options, address);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    store.throw_if_stopped_soon("connect");
    throw Error(ErrorCode::kDeadline,
                fmt::format("connect: rank {}: cannot connect to the {} ranks of group {}: {} "
                            "(look at the network of address {})",
                            rank, options.ranks.size(), options.name, error.what(), address));
  }
  return mesh;
}

}  // namespace

std::unique_ptr<Group> make_gloo_group(JobStore& store, ExchangeOptions options,
                                       const std::string& address) {
  const NoPipeSignal quiet;
  const int rank = find_own_rank(store, options.ranks);
  NodeMeeting node = meet_on_node(store, options, rank);
  std::unique_ptr<Transport> transport;
  if (!node.reaches_all) transport = make_mesh(store, options, rank, address);
  if (node.transport) {
    node.transport->set_base(std::move(transport));
    transport = std::move(node.transport);
  }
  auto group = make_exchange_group(store, options, std::move(transport));
  store.erase(key_of(options, rank));
  erase_meeting(store, options, rank);
  return group;
}

}  // namespace strata::comm

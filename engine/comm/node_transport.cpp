// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/node_transport.h"

#include <fmt/core.h>
#include <immintrin.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace strata::comm {
namespace {

constexpr int kLooks = 100;  // for a ring before it sleeps, some microseconds
constexpr double kSleepS = 0.5;
constexpr double kBaseSleepS = 0.5e-3;  // while the other transport has transfers, too
constexpr const char* kNone = "none";   // the name of memory that could not be made

}  // namespace

class NodeTransport::OwnTransfer final : public Transfer {
 public:
  OwnTransfer(NodeTransport& transport, std::byte* data, int64_t bytes)
      : transport_(transport), data_(data), left_(bytes) {}
  ~OwnTransfer() override {
    if (left_ > 0) transport_.forget(*this);
  }

  bool wait(std::chrono::milliseconds limit) override {
    const auto is_done = [this] { return left_ == 0; };
    const Driven driven = transport_.drive(is_done, interrupted_, Clock::now() + limit);
    if (driven == Driven::kLate) throw std::runtime_error("nothing came in time");
    return driven == Driven::kDone;
  }
  void interrupt() override {
    interrupted_ = true;
    transport_.own_->bell().ring();
  }

  // Returns whether it moved bytes by `move`, which takes an address and how many.
  template <typename Move>
  bool advance(const Move& move) {
    const int64_t moved = move(data_, left_);
    data_ += moved;
    left_ -= moved;
    return moved > 0;
  }
  bool is_done() const { return left_ == 0; }

 private:
  NodeTransport& transport_;
  std::byte* data_;
  int64_t left_;
  std::atomic<bool> interrupted_ = false;
};

class NodeTransport::BaseTransfer final : public Transfer {
 public:
  BaseTransfer(NodeTransport& transport, std::unique_ptr<Transfer> base)
      : transport_(transport), base_(std::move(base)) {}

  bool wait(std::chrono::milliseconds limit) override {
    const auto end = Clock::now() + limit;
    const auto is_done = [this] { return !transport_.has_transfers(); };
    if (transport_.drive(is_done, interrupted_, end) == Driven::kInterrupted) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    return base_->wait(std::max(left, std::chrono::milliseconds(1)));
  }
  void interrupt() override {
    interrupted_ = true;
    transport_.own_->bell().ring();
    base_->interrupt();
  }

 private:
  NodeTransport& transport_;
  const std::unique_ptr<Transfer> base_;
  std::atomic<bool> interrupted_ = false;
};

NodeTransport::NodeTransport(std::unique_ptr<NodeSegment> own,
                             std::vector<std::unique_ptr<NodeSegment>> peers, int own_place)
    : peers_(peers.size()), own_(std::move(own)) {
  int ring = 0;       // of ours, for the next writer
  int own_index = 0;  // of this rank among those of the machine
  for (int p = 0; p < own_place; ++p) own_index += peers[static_cast<size_t>(p)] != nullptr;
  for (size_t p = 0; p < peers.size(); ++p) {
    if (peers[p] == nullptr) continue;
    const bool is_before = static_cast<int>(p) < own_place;
    Peer& peer = peers_[p];
    peer.segment = std::move(peers[p]);
    peer.out = &peer.segment->ring(is_before ? own_index - 1 : own_index);
    peer.in = &own_->ring(ring++);
  }
}

std::unique_ptr<Transport::Transfer> NodeTransport::begin(int peer, std::byte* data, int64_t bytes,
                                                          bool sends) {
  if (closed_ || is_broken_) throw std::runtime_error("it is closed");
  Peer& one = peers_[static_cast<size_t>(peer)];
  if (one.segment == nullptr) {
    return std::make_unique<BaseTransfer>(
        *this, sends ? base_->send(peer, data, bytes) : base_->receive(peer, data, bytes));
  }
  auto transfer = std::make_unique<OwnTransfer>(*this, data, bytes);
  if (bytes > 0) (sends ? one.sends : one.receives).push_back(transfer.get());
  move_with(one);
  return transfer;
}

std::unique_ptr<Transport::Transfer> NodeTransport::send(int peer, const void* data,
                                                         int64_t bytes) {
  return begin(peer, static_cast<std::byte*>(const_cast<void*>(data)), bytes, true);
}
std::unique_ptr<Transport::Transfer> NodeTransport::receive(int peer, void* data, int64_t bytes) {
  return begin(peer, static_cast<std::byte*>(data), bytes, false);
}

// Moves what can be moved between this rank and a peer, and wakes the peer if anything was.
bool NodeTransport::move_with(Peer& peer) {
  bool moved = false;
  const auto run = [&](std::deque<OwnTransfer*>& transfers, const auto& move) {
    while (!transfers.empty() && transfers.front()->advance(move)) {
      moved = true;
      if (transfers.front()->is_done()) transfers.pop_front();
    }
  };
  run(peer.sends,
      [&](const std::byte* from, int64_t bytes) { return peer.out->write(from, bytes); });
  run(peer.receives, [&](std::byte* to, int64_t bytes) { return peer.in->read(to, bytes); });
  if (moved) peer.segment->bell().ring();
  return moved;
}

bool NodeTransport::has_transfers() const {
  return std::ranges::any_of(
      peers_, [](const Peer& peer) { return !peer.sends.empty() || !peer.receives.empty(); });
}

template <typename IsDone>
NodeTransport::Driven NodeTransport::drive(const IsDone& is_done,
                                           const std::atomic<bool>& interrupted,
                                           Clock::time_point end) {
  Doorbell& bell = own_->bell();
  while (true) {
    const uint32_t seen = bell.rings();
    bool moved = false;
    for (Peer& peer : peers_) {
      if (peer.segment != nullptr) moved |= move_with(peer);
    }
    if (is_done()) return Driven::kDone;
    if (interrupted) return Driven::kInterrupted;
    if (closed_) throw std::runtime_error("it is closed");
    const bool base_moves = base_ && base_->advance();
    if (moved) continue;
    const std::chrono::duration<double> left = end - Clock::now();
    if (left.count() <= 0) return Driven::kLate;
    for (int i = 0; i < kLooks && bell.rings() == seen; ++i) _mm_pause();
    const double longest_s = base_moves ? kBaseSleepS : kSleepS;
    if (bell.rings() == seen) bell.sleep(seen, std::min(left.count(), longest_s));
  }
}

// What follows on the ring would be taken for what is missing.
void NodeTransport::forget(OwnTransfer& transfer) {
  is_broken_ = true;
  for (Peer& peer : peers_) {
    std::erase(peer.sends, &transfer);
    std::erase(peer.receives, &transfer);
  }
}

void NodeTransport::close() {
  closed_ = true;
  own_->bell().ring();
  if (base_) base_->close();
}

// --- meeting ------------------------------------------------------------------------------------

namespace {

std::string key_of(const ExchangeOptions& options, int place, const char* what) {
  return fmt::format("node/{}/{}/{}", options.name, place, what);
}

// The places of the group's ranks on this machine.
std::vector<int> places_on_node(const ExchangeOptions& options, int own_place) {
  const auto node_of = [&](int place) {
    return options.ranks[static_cast<size_t>(place)] / options.ranks_on_node;
  };
  std::vector<int> places;
  for (int p = 0; p < static_cast<int>(options.ranks.size()); ++p) {
    if (node_of(p) == node_of(own_place)) places.push_back(p);
  }
  return places;
}

}  // namespace

NodeMeeting meet_on_node(JobStore& store, const ExchangeOptions& options, int own_place) {
  const std::vector<int> places = places_on_node(options, own_place);
  if (places.size() == 1) return {};
  const double end_s = now_s() + options.connect_s;
  const auto told = [&](int place, const char* what) {
    return store.get(key_of(options, place, what), end_s - now_s(),
                     options.ranks[static_cast<size_t>(place)]);
  };
  std::unique_ptr<NodeSegment> own;
  std::vector<std::unique_ptr<NodeSegment>> peers(options.ranks.size());
  std::string why;
  const auto attempt = [&](const auto& step) {
    try {
      if (why.empty()) step();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kConfig) throw;
      why = error.what();
    }
  };
  attempt([&] { own = std::make_unique<NodeSegment>(static_cast<int>(places.size()) - 1); });
  store.set(key_of(options, own_place, "memory"), own ? own->name() : kNone);
  for (const int place : places) {
    if (place == own_place) continue;
    const std::string name = told(place, "memory");
    if (name == kNone && why.empty()) why = fmt::format("rank {} has none", place);
    attempt([&] { peers[static_cast<size_t>(place)] = std::make_unique<NodeSegment>(name); });
  }
  store.set(key_of(options, own_place, "maps"), why.empty() ? "all" : "not all");
  bool all = true;
  for (const int place : places) all &= told(place, "maps") == "all";
  if (!why.empty()) {
    log(LogLevel::kWarning,
        fmt::format(
            "ranks: those of this machine cannot share memory and exchange by TCP, which is "
            "slower: {} (start them as one user, in one container, with file sizes of at "
            "least {} KiB allowed)",
            why, places.size() * NodeRing::kBytes / 1024));
  }
  if (!all) return {};
  own->keep_alone();
  return {.transport = std::make_unique<NodeTransport>(std::move(own), std::move(peers), own_place),
          .reaches_all = places.size() == options.ranks.size()};
}

void erase_meeting(JobStore& store, const ExchangeOptions& options, int own_place) {
  store.erase(fmt::format("node/{}/{}/", options.name, own_place));
}

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "engine/comm/exchange_group.h"
#include "engine/comm/node_memory.h"
#include "engine/comm/transport.h"

namespace strata::comm {

// Moves bytes between ranks of one machine through memory that they share, and between all others
// by another transport. A byte is copied twice, and no thread is needed: whoever waits for one
// transfer moves the bytes of all that share memory, and lets the other transport move what it can.
// A wait for the other transport comes after those, so a rank must not begin a transfer within its
// machine that ends only after one between machines which it awaits first.
class NodeTransport final : public Transport {
 public:
  // `peers`: by place in the group, a rank's memory, and null for this one and for those on other
  // machines. Rings are in the order of the group.
  NodeTransport(std::unique_ptr<NodeSegment> own, std::vector<std::unique_ptr<NodeSegment>> peers,
                int own_place);

  // For ranks of other machines.
  void set_base(std::unique_ptr<Transport> base) { base_ = std::move(base); }

  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override;
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) override;
  void close() override;

 private:
  using Clock = std::chrono::steady_clock;
  class OwnTransfer;
  class BaseTransfer;
  struct Peer {
    std::unique_ptr<NodeSegment> segment;  // null: it is on another machine
    NodeRing* out = nullptr;               // in its segment
    NodeRing* in = nullptr;                // in ours
    std::deque<OwnTransfer*> sends, receives;
  };

  enum class Driven : uint8_t { kDone, kInterrupted, kLate };

  std::unique_ptr<Transfer> begin(int peer, std::byte* data, int64_t bytes, bool sends);
  bool move_with(Peer& peer);
  bool has_transfers() const;
  // Moves bytes until is_done(), or `end`. Throws when the transport is closed.
  template <typename IsDone>
  Driven drive(const IsDone& is_done, const std::atomic<bool>& interrupted, Clock::time_point end);
  void forget(OwnTransfer& transfer);

  std::vector<Peer> peers_;  // by place in the group
  std::unique_ptr<NodeSegment> own_;
  std::unique_ptr<Transport> base_;
  bool is_broken_ = false;  // a transfer ended before its bytes had moved
  std::atomic<bool> closed_ = false;
};

struct NodeMeeting {
  std::unique_ptr<NodeTransport> transport;  // null where the ranks of this machine share no memory
  bool reaches_all = false;  // no rank of the group is elsewhere; the same for all of them
};

// Meets the other ranks of the group that are on this machine (options.ranks_on_node), by the
// store. Where one of them cannot share memory with another, none does, and a warning says why.
// Throws as the store's calls do. When the group has met, the keys can go.
NodeMeeting meet_on_node(JobStore& store, const ExchangeOptions& options, int own_place);
void erase_meeting(JobStore& store, const ExchangeOptions& options, int own_place);

}  // namespace strata::comm

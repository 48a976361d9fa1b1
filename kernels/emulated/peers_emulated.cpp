// SPDX-License-Identifier: Apache-2.0
#include "kernels/emulated/peers_emulated.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kernels/emulated/device_emulated.h"

namespace strata::kernels::emulated {
namespace {

constexpr std::chrono::milliseconds kSlice{20};

// Holds what is sent until it is received, so that a sender never waits. Threads: any.
class PeersHub : public std::enable_shared_from_this<PeersHub> {
 public:
  // Ids point to it.
  void keep_until_all_are_here() { own_ = shared_from_this(); }

  // Returns when `size` ranks have come.
  void meet(int size, const std::function<void()>& keep_waiting) {
    std::unique_lock lock(mu_);
    if (++here_ == size) own_.reset();  // the caller has another
    changed_.notify_all();
    while (!changed_.wait_for(lock, kSlice, [&] { return here_ >= size; })) {
      lock.unlock();
      if (keep_waiting) keep_waiting();
      lock.lock();
    }
  }

  void send(int from, int to, const void* data, int64_t bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mu_);
    mail_[{from, to}].emplace_back(first, first + bytes);
    changed_.notify_all();
  }

  void receive(int from, int to, void* data, int64_t bytes) {
    std::unique_lock lock(mu_);
    std::deque<std::vector<std::byte>>& box = mail_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty() || aborted_; });
    if (box.empty())
      throw Error(ErrorCode::kPeer,
                  "emulated device: an exchange was aborted (see what the other ranks report)");
    if (std::ssize(box.front()) != bytes) {
      throw Error(ErrorCode::kPeer,
                  fmt::format("emulated device: rank {} sends {} bytes where rank {} receives {} "
                              "(the ranks' plans differ: please report it)",
                              from, box.front().size(), to, bytes));
    }
    std::memcpy(data, box.front().data(), static_cast<size_t>(bytes));
    box.pop_front();
  }

  void abort() {
    const std::lock_guard lock(mu_);
    aborted_ = true;
    changed_.notify_all();
  }
  bool aborted() const {
    const std::lock_guard lock(mu_);
    return aborted_;
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::shared_ptr<PeersHub> own_;                                           // Guarded by mu_
  int here_ = 0;                                                            // Guarded by mu_
  bool aborted_ = false;                                                    // Guarded by mu_
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail_;  // Guarded by mu_
};

struct Id {
  pid_t process = 0;
  PeersHub* hub = nullptr;
};
static_assert(sizeof(Id) <= sizeof(PeersId));

class EmulatedPeers : public Peers {
 public:
  EmulatedPeers(std::shared_ptr<PeersHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  // In the order of the queue; everything is sent before anything is received.
  void exchange(Queue& queue, std::span<const Transfer> sends,
                std::span<const Transfer> receives) override {
    check();
    const std::vector<Transfer> out(sends.begin(), sends.end());
    const std::vector<Transfer> in(receives.begin(), receives.end());
    call_in_order(queue, [hub = hub_, rank = rank_, out, in](const HostView& view) {
      for (const Transfer& one : out) {
        hub->send(rank, one.peer, view.at(one.data, one.bytes, false), one.bytes);
      }
      for (const Transfer& one : in) {
        hub->receive(one.peer, rank, view.at(one.data, one.bytes, true), one.bytes);
      }
    });
  }
  void check() override {
    if (hub_->aborted())
      throw Error(ErrorCode::kPeer,
                  "emulated device: a peer has failed (see what the other ranks report)");
  }
  void abort() override { hub_->abort(); }

 private:
  const std::shared_ptr<PeersHub> hub_;
  const int rank_;
};

}  // namespace

PeersId make_hub_id() {
  const auto hub = std::make_shared<PeersHub>();
  hub->keep_until_all_are_here();
  const Id id = {getpid(), hub.get()};
  PeersId bytes = {};
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

std::unique_ptr<Peers> join_hub(const PeersOptions& options) {
  Id id;
  std::memcpy(&id, options.id.data(), sizeof(id));
  if (id.process != getpid()) {
    throw Error(ErrorCode::kPeer,
                "emulated device: its peers are in other processes, which share no memory with it "
                "(give --device-exchange host)");
  }
  std::shared_ptr<PeersHub> hub = id.hub->shared_from_this();
  hub->meet(options.size, options.keep_waiting);
  return std::make_unique<EmulatedPeers>(std::move(hub), options.rank);
}

}  // namespace strata::kernels::emulated

// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/lent_transport.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bindings/c/handles.h"

namespace strata::c {
namespace {

// A transfer of the caller's, which ends with the object.
class LentTransfer : public comm::Transport::Transfer {
 public:
  LentTransfer(const strata_transport& calls, void* transfer)
      : calls_(calls), transfer_(transfer) {}
  ~LentTransfer() override { calls_.end(calls_.context, transfer_); }

  bool wait(std::chrono::milliseconds limit) override {
    const double seconds = std::chrono::duration<double>(limit).count();
    const int result = calls_.wait(calls_.context, transfer_, seconds);
    if (result == STRATA_TRANSFER_DONE) return true;
    if (result == STRATA_TRANSFER_INTERRUPTED) return false;
    throw std::runtime_error(
        fmt::format("the transport that was given returned {} (look into it)", result));
  }
  void interrupt() override {
    if (calls_.interrupt != nullptr) calls_.interrupt(calls_.context, transfer_);
  }

 private:
  const strata_transport calls_;
  void* const transfer_;
};

class LentTransport : public comm::Transport {
 public:
  LentTransport(const strata_transport& calls, int channel, std::vector<int> ranks)
      : calls_(calls), channel_(channel), ranks_(std::move(ranks)) {}

  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override {
    void* transfer = nullptr;
    require_begun(calls_.send(calls_.context, channel_, of_job(peer), data, bytes, &transfer));
    return std::make_unique<LentTransfer>(calls_, transfer);
  }
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) override {
    void* transfer = nullptr;
    require_begun(calls_.receive(calls_.context, channel_, of_job(peer), data, bytes, &transfer));
    return std::make_unique<LentTransfer>(calls_, transfer);
  }
  void close() override {}  // transfers under way are interrupted one by one

 private:
  int of_job(int peer) const { return ranks_[static_cast<size_t>(peer)]; }
  static void require_begun(int result) {
    if (result == 0) return;
    throw std::runtime_error(
        fmt::format("the transport that was given returned {} (look into it)", result));
  }

  const strata_transport calls_;
  const int channel_;
  const std::vector<int> ranks_;
};

}  // namespace

RankPlace place_of(const strata_ranks& given) {
  RankPlace place = {.rank = given.rank,
                     .ranks_on_node = given.ranks_on_node,
                     .directory = text_or_empty(given.directory),
                     .address = text_or_empty(given.address),
                     .secret = text_or_empty(given.secret),
                     .interface = text_or_empty(given.interface),
                     .lend = nullptr};
  if (given.connect_s > 0) place.connect_s = given.connect_s;
  if (given.transport == nullptr) return place;
  const strata_transport calls = read_struct(given.transport, "store_join", "transport");
  require_given(reinterpret_cast<const void*>(calls.send), "store_join", "transport.send");
  require_given(reinterpret_cast<const void*>(calls.receive), "store_join", "transport.receive");
  require_given(reinterpret_cast<const void*>(calls.wait), "store_join", "transport.wait");
  require_given(reinterpret_cast<const void*>(calls.end), "store_join", "transport.end");
  place.lend = [calls](int channel, const std::vector<int>& ranks) {
    return std::make_unique<LentTransport>(calls, channel, ranks);
  };
  return place;
}

}  // namespace strata::c

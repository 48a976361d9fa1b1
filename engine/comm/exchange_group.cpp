// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/exchange_group.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/node_ranks.h"
#include "engine/base/units.h"
#include "engine/comm/bytes.h"
#include "engine/comm/call_header.h"
#include "engine/comm/nested_exchange.h"
#include "engine/comm/no_pipe_signal.h"

namespace strata::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class ExchangeGroup final : public Group {
 public:
  ExchangeGroup(JobStore& store, int own_rank, const ExchangeOptions& options,
                std::unique_ptr<Transport> transport)
      : Group(own_rank, static_cast<int>(options.ranks.size())),
        place_{own_rank, size(), ranks_together(options.ranks, options.ranks_on_node)},
        store_(store),
        name_(options.name),
        ranks_(options.ranks),
        deadline_s_(options.group.deadline_s),
        transport_(std::move(transport)),
        headers_(static_cast<size_t>(size())) {
    for (const int r : ranks_) {
      is_near_.push_back(r / options.ranks_on_node == store.rank() / options.ranks_on_node);
    }
  }

  ~ExchangeGroup() override {
    const NoPipeSignal quiet;
    store_.leave(name_);
    transport_->close();
  }

  // Returns when all ranks are there.
  void await_all(double within_s) {
    std::swap(deadline_s_, within_s);
    barrier();
    std::swap(deadline_s_, within_s);
  }

  void gather_chunks(std::span<const GatherRange> ranges) override {
    collective(header_of("gather", ranges), [&](Transfers& within) {
      wholes_.clear();
      for (const auto& [base, part_bytes] : ranges) {
        wholes_.push_back({base, part_bytes, size() * part_bytes});
      }
      Transfers between(*this, "gather");
      NestedGather(place_, within, between).run(wholes_);
    });
  }

  void reduce_chunks(std::span<const ReduceRange> ranges, Payload payload) override {
    const CallHeader header = header_of(ranges, payload);
    switch (payload) {
      case Payload::kF32:
        return reduce<float, float>(header, ranges);
      case Payload::kBF16:
        return reduce<float, uint16_t>(header, ranges);
      case Payload::kMxInt8:
        return reduce<FloatBlock, MxInt8Block>(header, ranges);
    }
  }

  void all_reduce_sum(float* values, int64_t count, Payload payload) override {
    const CallHeader header = header_of_sum(count, payload);
    STRATA_CHECK(count % block_of(payload) == 0);
    switch (payload) {
      case Payload::kF32:
        return all_reduce<float, float>(header, values, count);
      case Payload::kBF16:
        return all_reduce<float, uint16_t>(header, values, count);
      case Payload::kMxInt8:
        return all_reduce<FloatBlock, MxInt8Block>(header, reinterpret_cast<FloatBlock*>(values),
                                                   count / kMxBlock);
    }
  }
  void all_reduce_sum(double* values, int64_t count) override {
    all_reduce<double, double>(header_of("all_reduce f64", count), values, count);
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    STRATA_CHECK(root >= 0 && root < size());
    collective(header_of("broadcast", bytes, root), [&](Transfers& transfers) {
      // The ranks of the root's seat give it to the others of their machines.
      if (place_.seat() != root % place_.near) {
        transfers.receive(place_.at(place_.node(), root % place_.near), data, bytes);
        return transfers.await();
      }
      if (rank() == root) {
        place_.each_far([&](int r) { transfers.send(r, data, bytes); });
      } else {
        transfers.receive(root, data, bytes);
        transfers.await();
      }
      place_.each_near([&](int r) { transfers.send(r, data, bytes); });
      transfers.await();
    });
  }

  void all_to_all(const AllToAll& exchange) override {
    const int64_t bytes = exchange.part_bytes;
    collective(header_of("all_to_all", bytes), [&](Transfers& transfers) {
      each_peer([&](int r) { transfers.receive(r, byte_at(exchange.receive, r * bytes), bytes); });
      each_peer([&](int r) { transfers.send(r, byte_at(exchange.send, r * bytes), bytes); });
      copy_bytes(byte_at(exchange.receive, rank() * bytes), byte_at(exchange.send, rank() * bytes),
                 bytes);
      transfers.await();
    });
  }

  void send(const Message& message) override {
    check_peer(message);
    store_.throw_if_stopped("send");
    CallHeader header = header_of("send", message.bytes, message.tag);
    Transfers transfers(*this, "send");
    transfers.send_header(message.peer, header);
    transfers.send(message.peer, message.data, message.bytes);
    transfers.await();
  }

  void recv(const Message& message) override {
    check_peer(message);
    store_.throw_if_stopped("recv");
    CallHeader header;
    Transfers transfers(*this, "recv");
    transfers.receive(message.peer, &header, sizeof(header));
    transfers.await();
    if (std::strcmp(header.name, "send") != 0) {
      fail(
          fmt::format("recv: rank {}: called {} where a message is due (all ranks must make the "
                      "same calls in the same order)",
                      message.peer, header.name));
    }
    if (header.root != message.tag || header.size != message.bytes) {
      refuse(message, header.size, header.root);
    }
    transfers.receive(message.peer, message.data, message.bytes);
    transfers.await();
  }

  void meet(const CallHeader& header) override {
    collective(header, [](Transfers&) {});
  }

  void abort(const std::string& reason) override {
    const NoPipeSignal quiet;
    if (store_.stop(reason)) transport_->close();
  }
  void throw_if_aborted(const char* call) override { store_.throw_if_stopped(call); }

 private:
  // Sends and receptions under way; the k-th from a rank to another has slot k on both sides.
  class Transfers {
   public:
    Transfers(ExchangeGroup& group, const char* call) : group_(group), call_(call) {}

    void send_header(int peer, const CallHeader& header) {
      begin(peer, const_cast<CallHeader*>(&header), sizeof(header), true);
    }
    void send(int peer, const void* data, int64_t bytes) {
      group_.count(peer, bytes);
      if (bytes > 0) begin(peer, const_cast<void*>(data), bytes, true);
    }
    void receive(int peer, void* data, int64_t bytes) {
      if (bytes > 0) begin(peer, data, bytes, false);
    }

    size_t under_way() const { return open_.size(); }
    void await() { await(open_.size()); }
    void await(size_t count) {
      const auto end = Clock::now() + to_duration(group_.deadline_s_);
      for (size_t i = 0; i < count; ++i) await_one(i, end);
      open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(count));
    }

   private:
    struct Open {
      std::unique_ptr<Transport::Transfer> transfer;
      int peer;
      bool sends;
    };

    void begin(int peer, void* data, int64_t bytes, bool sends) {
      Transport& transport = *group_.transport_;
      try {
        open_.push_back(
            {sends ? transport.send(peer, data, bytes) : transport.receive(peer, data, bytes), peer,
             sends});
      } catch (const std::exception& error) {
        group_.lost(call_, peer, error.what());
      }
    }

    void await_one(size_t i, Clock::time_point end) {
      const Open& one = open_[i];
      const auto left = std::chrono::ceil<Milliseconds>(end - Clock::now());
      bool done = false;
      const JobStore::OnStop guard(
          group_.store_, [&] { one.transfer->interrupt(); },
          {.rank = group_.ranks_[static_cast<size_t>(one.peer)], .group = group_.name_});
      try {
        if (!guard.stopped_before()) done = one.transfer->wait(std::max(left, Milliseconds(1)));
      } catch (const std::exception& error) {
        if (Clock::now() >= end) late(i);
        group_.lost(call_, one.peer, error.what());
      }
      if (!done) group_.store_.throw_if_stopped(call_);
      STRATA_CHECK(done);
    }

    // Of those that are still awaited, a moment shows which have come by now.
    [[noreturn]] void late(size_t first) {
      std::vector<int> missing = {open_[first].peer};
      for (size_t i = first + 1; i < open_.size(); ++i) {
        if (open_[i].sends || std::ranges::count(missing, open_[i].peer) > 0) continue;
        bool came = false;
        try {
          came = open_[i].transfer->wait(Milliseconds(1));
        } catch (const std::exception&) {
        }
        if (!came) missing.push_back(open_[i].peer);
      }
      std::ranges::sort(missing);
      const std::string text = fmt::format("{}: rank {}: did not come within {} s", call_,
                                           fmt::join(missing, ", "), group_.deadline_s_);
      group_.abort(text);
      throw Error(ErrorCode::kDeadline, text);
    }

    ExchangeGroup& group_;
    const char* call_;
    std::vector<Open> open_;
    const NoPipeSignal quiet_;
  };

  void count(int peer, int64_t bytes) {
    (is_near_[static_cast<size_t>(peer)] ? sent_.within : sent_.between) += bytes;
  }

  template <typename Function>
  void each_peer(Function function) {
    // From the next rank on, so that ranks do not all turn to one.
    for (int k = 1; k < size(); ++k) function((rank() + k) % size());
  }

  [[noreturn]] void lost(const char* call, int peer, const char* what) {
    store_.throw_if_stopped_soon(call);
    fail(fmt::format("{}: rank {}: its connection is lost: {} (did its process end?)", call, peer,
                     what));
  }

  // All ranks see the same headers, so either all of them work or all of them fail.
  template <typename Work>
  void collective(const CallHeader& header, Work work) {
    store_.throw_if_stopped(header.name);
    Transfers transfers(*this, header.name);
    exchange_headers(transfers, header);
    const std::string difference = first_difference(headers_);
    if (difference.empty()) return work(transfers);
    // Once more, so that no rank stops the job while another still waits for a header: each is to
    // see the difference itself.
    try {
      exchange_headers(transfers, header);
    } catch (const Error&) {
    }
    fail(difference);
  }

  void exchange_headers(Transfers& transfers, const CallHeader& header) {
    headers_[static_cast<size_t>(rank())] = header;
    each_peer(
        [&](int r) { transfers.receive(r, &headers_[static_cast<size_t>(r)], sizeof(header)); });
    each_peer([&](int r) { transfers.send_header(r, header); });
    transfers.await();
  }

  // T: float, or a block of them.
  template <typename T, typename Wire>
  void reduce(const CallHeader& header, std::span<const ReduceRange> ranges) {
    constexpr auto kFloats = static_cast<int64_t>(sizeof(T) / sizeof(float));
    collective(header, [&](Transfers& within) {
      Transfers between(*this, header.name);
      HostSums sums(staging_);
      NestedSum<T, Wire, Transfers, HostSums> sum(place_, within, between, sums);
      for (const ReduceRange& range : ranges) {
        STRATA_CHECK(range.part_numel % kFloats == 0);
        const int64_t part = range.part_numel / kFloats;
        sum.run(reinterpret_cast<const T*>(range.whole), part, part * size(),
                reinterpret_cast<T*>(range.out));
      }
    });
  }

  template <typename T, typename Wire>
  void all_reduce(const CallHeader& header, T* values, int64_t count) {
    collective(header, [&](Transfers& within) {
      const int64_t part = ceil_div(count, size());
      Transfers between(*this, header.name);
      HostSums sums(staging_);
      NestedSum<T, Wire, Transfers, HostSums>(place_, within, between, sums)
          .run(values, part, count, values + rank() * part);
      constexpr auto kWidth = static_cast<int64_t>(sizeof(T));
      const Whole whole = {values, part * kWidth, count * kWidth};
      NestedGather(place_, within, between).run({&whole, 1});
    });
  }

  // Constant after await_all()
  const NestPlace place_;
  JobStore& store_;
  const std::string name_;
  const std::vector<int> ranks_;  // of the job
  std::vector<char> is_near_;     // by place: on this machine
  double deadline_s_;
  const std::unique_ptr<Transport> transport_;

  // Of the calling thread
  std::vector<CallHeader> headers_;
  std::vector<std::byte> staging_;
  std::vector<Whole> wholes_;
};

}  // namespace

int find_own_rank(const JobStore& store, std::vector<int>& ranks) {
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(store.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  const auto own = std::ranges::find(ranks, store.rank());
  STRATA_CHECK(own != ranks.end());
  return static_cast<int>(own - ranks.begin());
}

std::unique_ptr<Group> make_exchange_group(JobStore& store, ExchangeOptions options,
                                           std::unique_ptr<Transport> transport) {
  const int rank = find_own_rank(store, options.ranks);
  STRATA_CHECK(!options.name.empty());
  auto group = std::make_unique<ExchangeGroup>(store, rank, options, std::move(transport));
  group->await_all(options.connect_s);
  return group;
}

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/direct_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/comm/bytes.h"
#include "engine/comm/call_header.h"
#include "kernels/ordered_sum.h"

namespace strata::exec {
namespace {

constexpr int kCallsInFlight = 2;
// A device begins few exchanges.
constexpr int64_t kGatherPieceBytes = int64_t{16} << 20;
constexpr double kCheckS = 0.5;
constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

// Sends and receptions of the open op. await() issues them: what is issued to the queue later finds
// them done.
class DirectGroup::Transfers {
 public:
  explicit Transfers(DirectGroup& group) : group_(group) {}

  void send(int peer, const void* data, int64_t bytes) {
    SentBytes& sent = group_.sent_;
    (group_.options_.is_near[static_cast<size_t>(peer)] ? sent.within : sent.between) += bytes;
    if (bytes > 0) sends_.push_back({const_cast<void*>(data), bytes, peer});
  }
  void receive(int peer, void* data, int64_t bytes) {
    if (bytes > 0) receives_.push_back({data, bytes, peer});
  }
  size_t under_way() const { return sends_.size() + receives_.size(); }
  void await(size_t /*count*/) { await(); }
  void await() {
    if (under_way() == 0) return;
    group_.peers_->exchange(*group_.queue_, sends_, receives_);
    sends_.clear();
    receives_.clear();
  }

 private:
  DirectGroup& group_;
  std::vector<kernels::Peers::Transfer> sends_, receives_;
};

// Sums of the device's memory, which are staged in the op's buffer.
class DirectGroup::Sums {
 public:
  explicit Sums(DirectGroup& group) : group_(group) {}

  // The last part of the buffer has a sum of so many sources that the device adds them in steps.
  template <typename T, typename Wire>
  int64_t longest(int64_t rooms, int64_t /*depth*/) {
    constexpr int64_t kAligned = 64;
    const int64_t each = rooms * static_cast<int64_t>(sizeof(Wire)) + kFloatBytes;
    int64_t count = std::ssize(group_.op_.buffer) / each;
    if (count > kAligned) count = count / kAligned * kAligned;
    STRATA_CHECK(count > 0);
    partial_ = group_.op_.buffer.data() + group_.op_.buffer.size() - count * kFloatBytes;
    partial_ -= reinterpret_cast<uintptr_t>(partial_) % kFloatBytes;
    return count;
  }
  std::byte* room(int64_t bytes) {
    STRATA_CHECK(group_.op_.buffer.data() + bytes <= partial_);
    return group_.op_.buffer.data();
  }
  template <typename From, typename To>
  void convert(const From* from, To* to, int64_t count) {
    const From* const sources[] = {from};
    sum<float, From, To>(sources, to, count);
  }
  template <typename T, typename Source, typename Output>
  void sum(std::span<const Source* const> sources, Output* out, int64_t count) {
    constexpr size_t kMost = kernels::kMostSources;
    if (count == 0) return;
    const float* before = nullptr;
    for (; sources.size() > kMost; sources = sources.subspan(kMost)) {
      auto* const partial = reinterpret_cast<float*>(partial_);  // `out` may be a later source
      add(before, sources.first(kMost), partial, count);
      before = partial;
    }
    add(before, sources, out, count);
  }

 private:
  template <typename Element>
  static constexpr DType kTypeOf = std::is_same_v<Element, float> ? DType::kF32 : DType::kBF16;

  template <typename Source, typename Output>
  void add(const float* before, std::span<const Source* const> sources, Output* out,
           int64_t count) {
    kernels::OrderedSum op = {.count = count,
                              .sources = static_cast<int>(sources.size()),
                              .from = kTypeOf<Source>,
                              .to = kTypeOf<Output>,
                              .y = out,
                              .before = before};
    std::ranges::copy(sources, op.x.begin());
    group_.device_.ops().ordered_sum(*group_.queue_, op);
  }

  DirectGroup& group_;
  std::byte* partial_ = nullptr;
};

DirectGroup::DirectGroup(comm::Group& group, kernels::Device& device, Options options)
    : DeviceGroup(group),
      device_(device),
      options_(std::move(options)),
      place_{rank(), size(), options_.near},
      end_s_(now_s() + options_.deadline_s) {
  op_.name = "join";
  kernels::PeersOptions peers = {
      .rank = rank(), .size = size(), .keep_waiting = [this] { keep_waiting(); }};
  if (rank() == 0) peers.id = device.make_peers_id();
  group.broadcast(&peers.id, sizeof(peers.id), 0);
  peers_ = device.join(peers);
  queue_ = device.make_queue(options_.name, kCallsInFlight, true);
}

// Throws to end a wait for others: for all ranks, where it takes too long.
void DirectGroup::keep_waiting() {
  group_.throw_if_aborted(op_.name);
  options_.keep_waiting();
  if (now_s() <= end_s_) return;
  const std::string text = fmt::format(
      "{}: devices: those of {} have not exchanged within {} s (look at what links "
      "them, or give --device-exchange host; --io-deadline is the limit)",
      op_.name, options_.name, options_.deadline_s);
  group_.abort(text);
  throw Error(ErrorCode::kDeadline, text);
}

// Runs `work`, which issues to the queue, as the open op.
template <typename Work>
void DirectGroup::run(const Work& work) {
  end_s_ = now_s() + options_.deadline_s;
  try {
    queue_->begin(op_.name, op_.ranges);
    work();
    await(queue_->end());
  } catch (...) {
    peers_->abort();  // what is under way would never end, and the queue waits for it
    throw;
  }
}

// The same, when all ranks have come to the same call with buffers of one size.
template <typename Work>
void DirectGroup::run_together(comm::CallHeader header, const Work& work) {
  header.root = std::ssize(op_.buffer);
  group_.meet(header);
  run(work);
}

void DirectGroup::await(int64_t ticket) {
  while (queue_->completed() < ticket) {
    peers_->check();
    keep_waiting();
    queue_->sleep(ticket, kCheckS);
  }
}

void DirectGroup::copy(void* to, const void* from, int64_t bytes) {
  run([&] { queue_->copy(to, from, bytes); });
}

void DirectGroup::gather_chunks(std::span<const comm::GatherRange> ranges) {
  wholes_.clear();
  for (const comm::GatherRange& range : ranges) {
    wholes_.push_back({range.base, range.part_bytes, size() * range.part_bytes});
  }
  run_together(comm::header_of("gather", ranges), [&] { gather_parts(wholes_); });
}

// Within a machine and between machines at the same time, in the pieces of every group.
void DirectGroup::gather_parts(std::span<const comm::Whole> wholes) {
  Transfers transfers(*this);
  comm::NestedGather(place_, transfers, transfers, kGatherPieceBytes).run(wholes);
}

void DirectGroup::reduce_chunks(std::span<const comm::ReduceRange> ranges, Payload payload) {
  run_together(comm::header_of(ranges, payload), [&] {
    for (const comm::ReduceRange& range : ranges) {
      sum(payload, {range.whole, range.part_numel, size() * range.part_numel, range.out});
    }
  });
}

void DirectGroup::all_reduce_sum(float* values, int64_t count, Payload payload) {
  const int64_t part = ceil_div(count, size());
  const comm::Whole whole = {values, part * kFloatBytes, count * kFloatBytes};
  run_together(comm::header_of_sum(count, payload), [&] {
    sum(payload, {values, part, count, values + rank() * part});
    gather_parts({&whole, 1});
  });
}

void DirectGroup::sum(Payload payload, const Summed& summed) {
  switch (payload) {
    case Payload::kF32:
      return sum_as<float>(summed);
    case Payload::kBF16:
      return sum_as<uint16_t>(summed);
    case Payload::kMxInt8:
      STRATA_CHECK(!"devices add blocks of 8 bits");
  }
}

template <typename Wire>
void DirectGroup::sum_as(const Summed& summed) {
  Transfers transfers(*this);
  Sums sums(*this);
  comm::NestedSum<float, Wire, Transfers, Sums>(place_, transfers, transfers, sums)
      .run(summed.whole, summed.part_numel, summed.count, summed.out);
}

void DirectGroup::all_to_all(const comm::AllToAll& exchange) {
  const int64_t bytes = exchange.part_bytes;
  run_together(comm::header_of("all_to_all", bytes), [&] {
    Transfers transfers(*this);
    for (int k = 1; k < size(); ++k) {
      const int peer = (rank() + k) % size();
      transfers.receive(peer, comm::byte_at(exchange.receive, peer * bytes), bytes);
      transfers.send(peer, comm::byte_at(exchange.send, peer * bytes), bytes);
    }
    transfers.await();
    queue_->copy(comm::byte_at(exchange.receive, rank() * bytes),
                 comm::byte_at(exchange.send, rank() * bytes), bytes);
  });
}

namespace {

// The sender waits for the receiver, too. Messages of theirs have no bytes, so that none are
// counted, and a tag of what is to come.
comm::Message meeting_of(const comm::Message& message) {
  return {.peer = message.peer, .tag = message.tag ^ message.bytes << 16};
}

}  // namespace

void DirectGroup::send(const comm::Message& message) {
  group_.send(meeting_of(message));
  group_.recv(meeting_of(message));
  run([&] {
    Transfers transfers(*this);
    transfers.send(message.peer, message.data, message.bytes);
    transfers.await();
  });
}

void DirectGroup::recv(const comm::Message& message) {
  group_.recv(meeting_of(message));
  group_.send(meeting_of(message));
  run([&] {
    Transfers transfers(*this);
    transfers.receive(message.peer, message.data, message.bytes);
    transfers.await();
  });
}

void DirectGroup::abort(const std::string& reason) {
  group_.abort(reason);
  peers_->abort();
}

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group_local.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/comm/bytes.h"
#include "engine/comm/call_header.h"
#include "engine/comm/nested_exchange.h"
#include "engine/comm/ordered_sum.h"
#include "engine/comm/rendezvous.h"

namespace strata::comm {
namespace {

// What a rank brings to a collective. The others read it between enter and leave.
struct Call {
  CallHeader header;
  std::span<const GatherRange> gather = {};
  std::span<const ReduceRange> reduce = {};
  const void* from = nullptr;
  void* to = nullptr;
};

struct Meeting {
  Meeting(int count, double deadline_s)
      : point(count, deadline_s), calls(static_cast<size_t>(count)) {}
  Rendezvous point;
  std::vector<Call> calls;  // rank r writes element r while it is outside of enter .. leave
};

class LocalGroup final : public Group {
 public:
  LocalGroup(const NestPlace& place, std::shared_ptr<Meeting> meeting)
      : Group(place.rank, place.size),
        place_(place),
        meeting_(std::move(meeting)),
        headers_(static_cast<size_t>(size())),
        sources_f32_(static_cast<size_t>(size())),
        outputs_f32_(static_cast<size_t>(size())),
        sources_f64_(static_cast<size_t>(size())),
        outputs_f64_(static_cast<size_t>(size())) {}

  void gather_chunks(std::span<const GatherRange> ranges) override {
    for (const GatherRange& range : ranges) {
      count_gather(size() * range.part_bytes, range.part_bytes, 1);
    }
    collective({.header = header_of("gather", ranges), .gather = ranges}, [&] {
      for (size_t i = 0; i < ranges.size(); ++i) gather_one(i);
    });
  }

  void reduce_chunks(std::span<const ReduceRange> ranges, Payload payload) override {
    for (const ReduceRange& range : ranges) {
      const float* own = range.whole + rank() * range.part_numel;
      STRATA_CHECK(range.out == own || range.out + range.part_numel <= range.whole ||
                   range.out >= range.whole + size() * range.part_numel);
      count_sum(size() * range.part_numel, range.part_numel, payload);
      round_to(payload, range.whole, size() * range.part_numel);
    }
    collective({.header = header_of(ranges, payload), .reduce = ranges}, [&] {
      for (size_t i = 0; i < ranges.size(); ++i) reduce_one(i, payload);
    });
  }

  void all_reduce_sum(float* values, int64_t elements, Payload payload) override {
    round_to(payload, values, elements);
    const int64_t part = summed_part(elements, size(), payload);
    count_sum(elements, part, payload);
    count_gather(elements, part, sizeof(float));
    all_reduce(header_of_sum(elements, payload), payload, values, sources_f32_, outputs_f32_);
  }
  void all_reduce_sum(double* values, int64_t elements) override {
    count_sum(2 * elements, 2 * ceil_div(elements, size()), Payload::kF32);  // as many bytes
    count_gather(elements, ceil_div(elements, size()), sizeof(double));
    all_reduce(header_of("all_reduce f64", elements), Payload::kF32, values, sources_f64_,
               outputs_f64_);
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    STRATA_CHECK(root >= 0 && root < size());
    if (rank() == root) sent_.between += (place_.nodes() - 1) * bytes;
    if (place_.seat() == root % place_.near) sent_.within += (place_.near - 1) * bytes;
    collective({.header = header_of("broadcast", bytes, root), .from = data},
               [&] { copy_bytes(data, peer(root).from, bytes); });
  }

  void all_to_all(const AllToAll& exchange) override {
    const int64_t bytes = exchange.part_bytes;
    sent_.within += (place_.near - 1) * bytes;
    sent_.between += (size() - place_.near) * bytes;
    collective({.header = header_of("all_to_all", bytes), .from = exchange.send}, [&] {
      for (int r = 0; r < size(); ++r) {
        copy_bytes(byte_at(exchange.receive, r * bytes), byte_at(peer(r).from, rank() * bytes),
                   bytes);
      }
    });
  }

  void send(const Message& message) override {
    check_peer(message);
    (place_.is_near(message.peer) ? sent_.within : sent_.between) += message.bytes;
    meeting_->point.post(rank(), {message.data, message.bytes, message.peer, message.tag});
  }

  void recv(const Message& message) override {
    check_peer(message);
    const Rendezvous::PostedMessage posted = meeting_->point.await_message(message.peer, rank());
    const bool fits = posted.tag == message.tag && posted.bytes == message.bytes;
    if (fits) copy_bytes(message.data, posted.data, message.bytes);
    meeting_->point.done(message.peer);
    if (!fits) refuse(message, posted.bytes, posted.tag);
  }

  void meet(const CallHeader& header) override {
    collective({.header = header}, [] {});
  }

  void abort(const std::string& reason) override { meeting_->point.abort(rank(), reason); }
  void throw_if_aborted(const char* call) override { meeting_->point.check(call); }

 private:
  // Of parts of `part` elements, as many as there are of `count`: how many rank r has.
  static int64_t part_of(int64_t count, int64_t part, int r) {
    return std::clamp<int64_t>(count - r * part, 0, part);
  }
  // Calls function(rank, elements) for the parts of this rank's seat.
  template <typename Function>
  void each_part_of_seat(int64_t count, int64_t part, int seat, Function function) const {
    for (int node = 0; node < place_.nodes(); ++node) {
      const int r = place_.at(node, seat);
      function(r, part_of(count, part, r));
    }
  }
  // What processes would send.
  void count_gather(int64_t count, int64_t part, int64_t width) {
    sent_.between += (place_.nodes() - 1) * part_of(count, part, rank()) * width;
    each_part_of_seat(count, part, place_.seat(), [&](int, int64_t elements) {
      sent_.within += (place_.near - 1) * elements * width;
    });
  }
  void count_sum(int64_t count, int64_t part, Payload payload) {
    for (int seat = 0; seat < place_.near; ++seat) {
      each_part_of_seat(count, part, seat, [&](int r, int64_t elements) {
        if (seat != place_.seat())
          sent_.within += bytes_of(payload, elements);
        else if (r != rank())
          sent_.between += bytes_of(payload, elements);
      });
    }
  }

  const Call& peer(int r) const { return meeting_->calls[static_cast<size_t>(r)]; }

  // Runs `work` between a meeting of all ranks and another. All ranks see the same calls, so either
  // all of them work or all of them fail.
  template <typename Work>
  void collective(const Call& call, Work work) {
    meeting_->calls[static_cast<size_t>(rank())] = call;
    const char* name = call.header.name;
    meeting_->point.enter(rank(), name);
    std::transform(meeting_->calls.begin(), meeting_->calls.end(), headers_.begin(),
                   [](const Call& each) { return each.header; });
    const std::string difference = first_difference(headers_);
    if (difference.empty()) work();
    meeting_->point.leave(rank(), name);
    if (!difference.empty()) fail(difference);
  }

  void gather_one(size_t i) {
    const GatherRange& mine = peer(rank()).gather[i];
    // Start at the next rank, so that ranks do not all read one rank's memory at once.
    for (int k = 1; k < size(); ++k) {
      const int r = (rank() + k) % size();
      const int64_t offset = r * mine.part_bytes;
      copy_bytes(byte_at(mine.base, offset), byte_at(peer(r).gather[i].base, offset),
                 mine.part_bytes);
    }
  }

  // Only rank r touches part r of any contribution, so `out` may overlap this rank's own part.
  void reduce_one(size_t i, Payload payload) {
    const ReduceRange& mine = peer(rank()).reduce[i];
    for (int r = 0; r < size(); ++r) {
      sources_f32_[static_cast<size_t>(r)] = peer(r).reduce[i].whole + rank() * mine.part_numel;
    }
    float* const outputs[] = {mine.out};
    ordered_sum<float, float, float>(sources_f32_, outputs, mine.part_numel, nesting_of(payload));
  }

  // Several machines' sums are rounded, too.
  SumNesting nesting_of(Payload payload) const {
    return {static_cast<size_t>(place_.near), place_.nodes() > 1 ? payload : Payload::kF32};
  }

  // Rank r sums part r and writes it to every rank; no other rank reads or writes that part.
  template <typename T>
  void all_reduce(const CallHeader& header, Payload payload, T* values,
                  std::vector<const T*>& sources, std::vector<T*>& outputs) {
    collective({.header = header, .to = values}, [&] {
      const int64_t count = header.size;
      const int64_t part = summed_part(count, size(), payload);
      const int64_t first = std::min(count, rank() * part);
      for (int r = 0; r < size(); ++r) {
        const size_t i = static_cast<size_t>(r);
        outputs[i] = static_cast<T*>(peer(r).to) + first;
        sources[i] = outputs[i];
      }
      ordered_sum<T, T, T>(sources, outputs, std::min(count - first, part), nesting_of(payload));
    });
  }

  const NestPlace place_;
  // Shared by the ranks' groups, so that they may be destroyed in any order.
  const std::shared_ptr<Meeting> meeting_;

  // Used inside a call only.
  std::vector<CallHeader> headers_;
  std::vector<const float*> sources_f32_;
  std::vector<float*> outputs_f32_;
  std::vector<const double*> sources_f64_;
  std::vector<double*> outputs_f64_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_local_groups(int count, const GroupOptions& options) {
  STRATA_CHECK(count >= 1);
  const auto meeting = std::make_shared<Meeting>(count, options.deadline_s);
  std::vector<std::unique_ptr<Group>> groups;
  const int near = options.near > 0 ? options.near : count;
  STRATA_CHECK(count % near == 0);
  for (int r = 0; r < count; ++r) {
    groups.push_back(std::make_unique<LocalGroup>(NestPlace{r, count, near}, meeting));
  }
  return groups;
}

}  // namespace strata::comm

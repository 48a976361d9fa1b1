// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group_self.h"

#include <cstring>

#include "engine/base/check.h"

namespace strata::comm {
namespace {

class SelfGroup final : public Group {
 public:
  SelfGroup() : Group(0, 1) {}

  void gather_chunks(std::span<const GatherRange>) override {}

  void reduce_chunks(std::span<const ReduceRange> ranges, Payload) override {
    for (const ReduceRange& range : ranges) {
      if (range.out == range.whole || range.part_numel == 0) continue;
      std::memcpy(range.out, range.whole, static_cast<size_t>(range.part_numel) * sizeof(float));
    }
  }

  void all_reduce_sum(float*, int64_t, Payload) override {}
  void all_reduce_sum(double*, int64_t) override {}
  void broadcast(void*, int64_t, int root) override { STRATA_CHECK(root == 0); }

  void all_to_all(const AllToAll& exchange) override {
    if (exchange.part_bytes == 0) return;
    std::memcpy(exchange.receive, exchange.send, static_cast<size_t>(exchange.part_bytes));
  }

  void send(const Message&) override { STRATA_CHECK(!"a peer to send to"); }
  void recv(const Message&) override { STRATA_CHECK(!"a peer to receive from"); }
  void meet(const CallHeader&) override {}
  void abort(const std::string&) override {}
  void throw_if_aborted(const char*) override {}
};

}  // namespace

std::unique_ptr<Group> make_self_group() {
  return std::make_unique<SelfGroup>();
}

}  // namespace strata::comm

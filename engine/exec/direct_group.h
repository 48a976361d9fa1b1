// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/call_header.h"
#include "engine/comm/nested_exchange.h"
#include "engine/exec/device_group.h"
#include "kernels/peers.h"

namespace strata::exec {

// A group of ranks whose devices send each other memory. Parts of others that are summed come to
// the op's buffer, which lies on the device, and the device adds them, in the order of every group;
// so bits are those of other groups, but those of a NaN. Ranks meet by the host before each
// exchange: none holds its device's processors while it waits for one that is late, and one that is
// gone, or at another call, is known by name.
//
// Payload::kMxInt8 is not for it. All ranks need buffers of one size. Failure: also Error{kPeer}
// where an exchange between devices fails, and Error{kDeadline} where one does not end. All ranks
// make their groups in one order.
class DirectGroup : public DeviceGroup {
 public:
  struct Options {
    const char* name = "";           // of the queue
    int near = 1;                    // as of comm::NestPlace
    std::vector<char> is_near = {};  // by rank: on this machine
    // Called now and then while others are awaited; throws to end the wait.
    std::function<void()> keep_waiting = {};
    double deadline_s = 600;  // the longest wait for an exchange that all ranks have begun
  };

  // Returns when all ranks are there. The group and the device must outlive this.
  DirectGroup(comm::Group& group, kernels::Device& device, Options options);

  void copy(void* to, const void* from, int64_t bytes) override;
  void gather_chunks(std::span<const comm::GatherRange> ranges) override;
  void reduce_chunks(std::span<const comm::ReduceRange> ranges, Payload payload) override;
  using DeviceGroup::all_reduce_sum;
  void all_reduce_sum(float* values, int64_t count, Payload payload) override;
  void all_to_all(const comm::AllToAll& exchange) override;
  void send(const comm::Message& message) override;
  void recv(const comm::Message& message) override;
  void abort(const std::string& reason) override;

 private:
  class Transfers;
  class Sums;

  // `part_numel` elements of `whole` for each rank, up to `count`; `out` gets the sum of this
  // rank's.
  struct Summed {
    const float* whole = nullptr;
    int64_t part_numel = 0;
    int64_t count = 0;
    float* out = nullptr;
  };

  template <typename Work>
  void run(const Work& work);
  template <typename Work>
  void run_together(comm::CallHeader header, const Work& work);
  void await(int64_t ticket);
  void keep_waiting();
  void gather_parts(std::span<const comm::Whole> wholes);
  void sum(Payload payload, const Summed& summed);
  template <typename Wire>
  void sum_as(const Summed& summed);

  kernels::Device& device_;
  const Options options_;
  const comm::NestPlace place_;
  double end_s_;  // of the wait for others
  std::unique_ptr<kernels::Peers> peers_;
  std::unique_ptr<kernels::Queue> queue_;
  std::vector<comm::Whole> wholes_;
};

}  // namespace strata::exec

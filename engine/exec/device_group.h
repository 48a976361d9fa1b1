// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "engine/comm/group.h"
#include "kernels/device.h"

namespace strata::exec {

// A group whose calls take values in a device's memory, beside a group of the same ranks that
// exchanges host memory.
//
// Threads: one at a time. abort() may be called by any. Failure: Error{kDevice} of the queues, or
// where a call touches what is not its op's, and what the other group throws.
class DeviceGroup : public comm::Group {
 public:
  // An op that exchanges: what it may touch, and its buffer. `name` is for messages.
  struct OpenOp {
    const char* name = "";
    std::span<const kernels::MemoryRange> ranges;
    std::span<std::byte> buffer;  // at least plan::kLeastBounceBytes for each rank
  };

  // Later calls belong to this op, whose memory must stay until the next one.
  void open(const OpenOp& op) { op_ = op; }

  // Within the memory of the open op.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // Values of these are in host memory.
  using comm::Group::all_reduce_sum;
  void all_reduce_sum(double* values, int64_t count) override {
    group_.all_reduce_sum(values, count);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    group_.broadcast(data, bytes, root);
  }
  void meet(const comm::CallHeader& header) override { group_.meet(header); }
  void abort(const std::string& reason) override { group_.abort(reason); }
  void throw_if_aborted(const char* call) override { group_.throw_if_aborted(call); }

 protected:
  explicit DeviceGroup(comm::Group& group) : Group(group.rank(), group.size()), group_(group) {}

  comm::Group& group_;
  OpenOp op_;
};

}  // namespace strata::exec

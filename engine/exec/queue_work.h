// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/exec/executor_impl.h"
#include "engine/exec/op_name.h"

namespace strata::exec {

// Does ops on a queue of a device, or of the host, where issuing an op completes it.
class Executor::Impl::QueueWork : public Executor::Impl::Work {
 public:
  QueueWork(Impl& impl, plan::Lane lane);

  int depth() const override { return on_device_ ? kDepth : 1; }
  void start(InFlight& op) override;
  bool is_done(InFlight& op) override;
  void finish(InFlight& op) override;
  void sleep(const InFlight& oldest) override;
  void wake() override { queue_.wake(); }

  static constexpr int kDepth = 16;

 private:
  Impl& impl_;
  const plan::Lane lane_;
  const bool on_device_;
  kernels::Queue& queue_;
  double last_end_s_ = 0;
  OpName name_ = {};  // of the op in progress
  std::vector<kernels::MemoryRange> ranges_;
};

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/exec/executor_impl.h"

namespace strata::exec {

// The seed of a block's checksum: the value that the bytes belong to.
uint64_t tag_of(const plan::Value& value);

// The most transfers of an I/O lane that are submitted and not done.
uint32_t most_transfers(const plan::Plan& plan, plan::Lane lane);

// Does ops as transfers of a channel, and converts frozen weights from their source.
class Executor::Impl::IoWork : public Executor::Impl::Work {
 public:
  // `channel` is null without NVMe.
  IoWork(Impl& impl, io::Channel* channel) : impl_(impl), channel_(channel) {}

  int depth() const override { return impl_.plan_.io_depth; }
  void start(InFlight& op) override;
  bool is_done(InFlight& op) override;
  void finish(InFlight& op) override;
  void sleep(const InFlight& oldest) override;
  void wake() override;

 private:
  void prepare(InFlight& op) const;
  uint64_t address_of(const plan::Access& access, const InFlight& op) const;

  Impl& impl_;
  io::Channel* const channel_;
};

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/device_watch.h"

#include <fmt/format.h>

#include "engine/base/environment.h"
#include "engine/exec/op_name.h"

namespace strata::exec {

using plan::Lane;

Executor::Impl::DeviceWatch::DeviceWatch(Impl& impl) : impl_(impl), clock_(2.0) {}

void Executor::Impl::DeviceWatch::look() {
  clock_.tick();
  try {
    for (int i = 0; i < plan::kLaneCount && !impl_.progress_.stopped(); ++i) {
      const Lane lane = static_cast<Lane>(i);
      if (impl_.on_device(lane) && impl_.queues_[index_of(lane)] != nullptr) look_at(lane);
    }
  } catch (const Error&) {
    // The device has failed, and the lane whose op it was says so.
  }
}

// A lane may not yet have published what its queue has completed.
int64_t Executor::Impl::DeviceWatch::done_of(Lane lane) const {
  return impl_.on_device(lane) ? impl_.queues_[index_of(lane)]->completed()
                               : impl_.progress_.published(lane);
}

bool Executor::Impl::DeviceWatch::is_at_work(Lane lane, const Instance& instance,
                                             const plan::Op& op) const {
  for (const plan::Wait& wait : impl_.program_of(instance).waits_of(op)) {
    const Progress::Target target = impl_.target_of(lane, instance, wait);
    if (done_of(wait.lane) < target.count) return false;
  }
  return true;
}

void Executor::Impl::DeviceWatch::look_at(Lane lane) {
  const int64_t done = done_of(lane);
  Watched& watched = watched_[index_of(lane)];
  if (impl_.progress_.published(lane, Stage::kIssued) <= done) {
    watched.done = -1;
    return;
  }
  for (const Instance* instance : impl_.instances_) {
    if (instance == nullptr) continue;
    const plan::Program& program = impl_.program_of(*instance);
    const auto& ops = program.lanes[index_of(lane)];
    const int64_t at = done - instance->base[index_of(lane)];
    if (at < 0 || at >= static_cast<int64_t>(ops.size())) continue;
    const plan::Op& op = program.ops[ops[static_cast<size_t>(at)]];
    if (watched.done != done || !is_at_work(lane, *instance, op)) {
      watched = {done, clock_.now_s()};
    } else if (clock_.now_s() - watched.since_s > impl_.options_.io_deadline_s) {
      give_up(impl_, fmt::format("{} on {}", name_of(op, impl_.spec_).data(), plan::name_of(lane)));
    }
    return;
  }
}

void Executor::Impl::DeviceWatch::give_up(Impl& impl, const std::string& what) {
  const Error error(
      ErrorCode::kDeadline,
      fmt::format("cuda: {}: not done after {:.0f} s, and a GPU cannot be made to stop, so "
                  "this process must end (run `dmesg | grep NVRM` for faults of the GPU; start "
                  "again from the checkpoint; --io-deadline is the limit)",
                  what, impl.options_.io_deadline_s));
  impl.progress_.fail(std::make_exception_ptr(error));
  abort_all(impl.options_.groups, error.what());  // other ranks hear it before this one ends
  report_hang(error);
}

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/device_uses.h"

#include <algorithm>

#include "engine/exec/device_watch.h"
#include "engine/exec/op_name.h"

namespace strata::exec {

using plan::Lane;

// A use may be open beside those in flight, with copies.
Executor::Impl::DeviceUses::DeviceUses(Impl& impl)
    : impl_(impl),
      lane_(*impl.queues_[index_of(Lane::kCompute)]),
      opens_(impl.device_->make_queue("uses", 2 * kDepth)) {}

void Executor::Impl::DeviceUses::take_ranges(const Instance& instance, const plan::Op& op) {
  ranges_.clear();
  for (const plan::Access& access : impl_.program_of(instance).accesses_of(op)) {
    ranges_.push_back({impl_.at(access), access.bytes, access.mode == plan::Mode::kWrite});
  }
}

void Executor::Impl::DeviceUses::open(const Instance& instance, const plan::Op& op,
                                      std::optional<void*> stream, bool zeroes) {
  stream_ = stream;
  take_ranges(instance, op);
  impl_.wait_on_queue(*opens_, Lane::kCompute, instance, op);
  if (closed_.load() > 0) opens_->wait(lane_, closed_.load());  // the use before, of any stream
  opens_->begin("use", ranges_);
  impl_.clear_gradients(op, zeroes);
  opened_ = first_ = opens_->end();
  opened_s_.reset();
}

void Executor::Impl::DeviceUses::give() {
  stream_ ? opens_->let_wait(*stream_, opened_) : await_opened();
}

void Executor::Impl::DeviceUses::fill_zeros(float* values, int64_t count) {
  impl_.device_->ops().fill(*opens_, {.count = count, .y = values});
}

void Executor::Impl::DeviceUses::close(Instance& instance, uint32_t op, bool is_skipped,
                                       bool is_last) {
  const int64_t count = closed_.load() + 1;
  if (count > kDepth) impl_.progress_.wait({Lane::kCompute, count - kDepth});
  const plan::Op& of = impl_.program_of(instance).ops[op];
  take_ranges(instance, of);
  lane_.wait(*opens_, opened_);
  if (stream_) lane_.wait_for(*stream_);
  const OpName name = name_of(of, impl_.spec_);
  lane_.begin(name.data(), ranges_);
  (void)lane_.end();
  closed_use(count) = {&instance, op, first_, opened_s_, is_skipped, is_last};
  closed_.store(count);
  impl_.progress_.publish(Lane::kCompute, Stage::kIssued);
  impl_.progress_.notify();
}

// In the order of the caller's stream.
void Executor::Impl::DeviceUses::copy(const Instance& instance, const plan::Op& op,
                                      const Copied& copied) {
  take_ranges(instance, op);
  ranges_.push_back({copied.takes ? copied.to : copied.from, copied.bytes, copied.takes});
  if (stream_) opens_->wait_for(*stream_);
  opens_->begin("copy", ranges_);
  opens_->copy(copied.to, copied.from, copied.bytes);
  opened_ = opens_->end();
  await_opened();
  if (!opened_s_) opened_s_ = opens_->span_of(first_).end_s;  // before copies take its place
  if (stream_) opens_->let_wait(*stream_, opened_);
}

// What a caller has on its stream may take any time.
void Executor::Impl::DeviceUses::await_opened() const {
  for (double waited_s = 0; opens_->completed() < opened_; waited_s += kSleep_s) {
    if (!stream_ && waited_s > impl_.options_.io_deadline_s) DeviceWatch::give_up(impl_, "a use");
    if (impl_.progress_.stopped()) throw Progress::Stopped{};
    opens_->sleep(opened_, kSleep_s);
  }
}

// A use begins when its weights are there and the one before it is done.
void Executor::Impl::DeviceUses::publish() {
  double last_end_s = 0;
  for (int64_t next = 1;; ++next) {
    impl_.progress_.wait_until([&] { return closed_.load() >= next; });
    while (lane_.completed() < next) {
      if (impl_.progress_.stopped()) throw Progress::Stopped{};
      lane_.sleep(next, kSleep_s);
    }
    const Closed use = closed_use(next);
    const double end_s = lane_.span_of(next).end_s;
    const double opened_s = use.opened_s ? *use.opened_s : opens_->span_of(use.opened).end_s;
    const double begin_s = std::min(end_s, std::max(last_end_s, opened_s));
    impl_.finish_use(*use.instance, {use.op, begin_s, end_s}, use.is_skipped, use.is_last);
    last_end_s = end_s;
  }
}

}  // namespace strata::exec

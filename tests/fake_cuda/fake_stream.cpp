// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "engine/base/clock.h"
#include "tests/fake_cuda/fake_device.h"

namespace fake_cuda {

Stream::Stream(Device& device, int id, int gpu)
    : device_(device),
      id_(id),
      gpu_(gpu),
      random_(static_cast<uint64_t>(device.faults.setting("seed")) * 1000 +
              static_cast<uint64_t>(id)) {
  thread_ = std::thread([this] { run(); });
}

Stream::~Stream() {
  wait_idle();
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

int64_t Stream::add(Command command) {
  command.number = ++pushed_;
  commands_.push_back(std::move(command));
  changed_.notify_all();
  return pushed_;
}

void Stream::push(std::string name, const Ranges& ranges, std::function<void()> run) {
  const std::lock_guard lock(mu_);
  device_.enter(id_, pushed_ + 1, name, ranges, clock_);
  add({std::move(name), std::move(run)});
}

void Stream::record(const std::shared_ptr<EventState>& event) {
  const std::lock_guard lock(mu_);
  int64_t record = 0;
  {
    const std::lock_guard event_lock(event->mu);
    record = ++event->recorded;
    event->clock = clock_;
    event->clock[id_] = pushed_;
  }
  add({"event",
       [event, record] {
         const std::lock_guard event_lock(event->mu);
         event->completed = record;
         event->time_s = strata::now_s();
         event->changed.notify_all();
       },
       0, true});
}

void Stream::wait_for(const std::shared_ptr<EventState>& event) {
  const std::lock_guard lock(mu_);
  int64_t record = 0;
  {
    const std::lock_guard event_lock(event->mu);
    record = event->recorded;
    for (const auto& [stream, number] : event->clock) {
      clock_[stream] = std::max(clock_[stream], number);
    }
  }
  add({"wait",
       [event, record] {
         std::unique_lock event_lock(event->mu);
         event->changed.wait(event_lock, [&] { return event->completed >= record; });
       },
       0, true});
}

void Stream::wait_idle() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return done_ == pushed_; });
}

void Stream::run() {
  while (true) {
    Command command;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [&] { return stopping_ || !commands_.empty(); });
      if (commands_.empty()) return;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    if (!command.is_bookkeeping) delay();
    // After an error nothing runs, but events count as over.
    if (command.is_bookkeeping || device_.failure() == cudaSuccess) command.run();
    if (!command.is_bookkeeping) device_.leave(id_, command.number);
    const std::lock_guard lock(mu_);
    done_ = command.number;
    changed_.notify_all();
  }
}

void Stream::delay() {
  const int64_t most_us = device_.faults.setting("delay_us");
  if (most_us <= 0) return;
  std::uniform_int_distribution<int64_t> draw(0, most_us);
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, std::chrono::microseconds(draw(random_)), [&] { return stopping_; });
}

bool launch(cudaStream_t stream, std::function<void()> run) {
  Device& device = Device::instance();
  if (device.failure() != cudaSuccess) return false;
  const Ranges& ranges = OpScope::ranges();
  bool reachable = true;
  for (const Range& range : ranges) {
    reachable = reachable && device.mapped(range.begin, range.bytes) != nullptr;
  }
  reinterpret_cast<Stream*>(stream)->push(
      "a kernel", ranges, [&device, reachable, run = std::move(run)] {
        if (device.faults.fails("lost")) return device.fail(cudaErrorUnknown, "");
        if (!reachable) {
          return device.fail(cudaErrorIllegalAddress,
                             "a kernel touches bytes that are not of "
                             "one allocation of the device");
        }
        if (device.faults.fails("hang")) return device.hang();
        if (device.faults.fails("kernel")) return device.fail(cudaErrorIllegalAddress, "");
        run();
      });
  return true;
}

}  // namespace fake_cuda

// SPDX-License-Identifier: Apache-2.0
#include "engine/base/blocking_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/base/clock.h"
#include "engine/base/threads.h"

namespace strata {
namespace {

constexpr double kWarnAfterS = 30;
constexpr double kLongestSleepS = 1;

BlockingCalls* calls_of_this_thread() {
  Environment* environment = Environment::current();
  return environment == nullptr ? nullptr : &environment->blocking_calls();
}

}  // namespace

BlockingCalls::BlockingCalls(const Sinks& sinks)
    : sinks_(sinks), clock_(2 * sleep_s()), thread_(start_thread([this] { watch(); })) {}

BlockingCalls::~BlockingCalls() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
  }
  stopped_.notify_all();
}

void BlockingCalls::add(BlockingCall& call) {
  const std::lock_guard lock(mu_);
  call.begin_s_ = clock_.now_s();
  call.previous_ = last_;
  (last_ == nullptr ? first_ : last_->next_) = &call;
  last_ = &call;
}

void BlockingCalls::remove(BlockingCall& call) {
  const std::lock_guard lock(mu_);
  (call.previous_ == nullptr ? first_ : call.previous_->next_) = call.next_;
  (call.next_ == nullptr ? last_ : call.next_->previous_) = call.previous_;
}

double BlockingCalls::sleep_s() const {
  return std::min(kLongestSleepS, sinks_.hang_after_s / 4);
}

void BlockingCalls::watch() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    stopped_.wait_for(lock, std::chrono::duration<double>(sleep_s()));
    clock_.tick();
    for (BlockingCall* call = first_; call != nullptr; call = call->next_) look_at(*call);
  }
}

void BlockingCalls::look_at(BlockingCall& call) {
  const double age_s = clock_.now_s() - call.begin_s_;
  if (age_s > sinks_.hang_after_s && !call.reported_) {
    call.reported_ = true;
    report_hang(Error(
        ErrorCode::kDeadline,
        fmt::format("{}: {}: no answer for {:.1f} s, and a thread that waits for it cannot be "
                    "stopped, so this process must end (the drive, the file server or the GPU "
                    "hangs: see dmesg)",
                    call.what_, call.path_, age_s)));
  }
  if (age_s <= kWarnAfterS || call.warned_) return;
  call.warned_ = true;
  log(LogLevel::kWarning,
      fmt::format("{}: {}: no answer for {:.1f} s (the drive, the file server or the GPU is slow "
                  "or stuck: see dmesg)",
                  call.what_, call.path_, age_s));
}

BlockingCall::BlockingCall(const char* what, const std::string& path)
    : what_(what), path_(path), calls_(calls_of_this_thread()) {
  if (calls_ != nullptr) calls_->add(*this);
}

BlockingCall::~BlockingCall() {
  if (calls_ != nullptr) calls_->remove(*this);
}

double BlockingCall::deadline_s() {
  const Environment* environment = Environment::current();
  return environment == nullptr ? Sinks().hang_after_s : environment->sinks().hang_after_s;
}

}  // namespace strata

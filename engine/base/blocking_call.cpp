// SPDX-License-Identifier: Apache-2.0
#include "engine/base/blocking_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"

namespace strata {
namespace {

constexpr double kWarnAfterS = 30;
constexpr double kLongestSleepS = 1;

std::atomic<double> deadline = 600;

[[noreturn]] void end_process(const std::string& text) {
  const Error error(ErrorCode::kDeadline, text);
  const std::string line = fmt::format("error: {}\n", printable(error.what()));
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  _exit(error.exit_code());
}

}  // namespace

// All calls that are under way, oldest first, and the thread that looks at them.
class BlockingCalls {
 public:
  static BlockingCalls& instance() {
    static BlockingCalls calls;
    return calls;
  }
  ~BlockingCalls() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
    }
    stopped_.notify_all();
  }

  void add(BlockingCall& call) {
    const std::lock_guard lock(mu_);
    call.begin_s_ = now_s();
    call.previous_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &call;
    last_ = &call;
  }

  void remove(BlockingCall& call) {
    const std::lock_guard lock(mu_);
    (call.previous_ == nullptr ? first_ : call.previous_->next_) = call.next_;
    (call.next_ == nullptr ? last_ : call.next_->previous_) = call.previous_;
  }

 private:
  BlockingCalls() : thread_(start_thread([this] { watch(); })) {}

  void watch() {
    std::unique_lock lock(mu_);
    while (!stopping_) {
      const double sleep_s = std::min(kLongestSleepS, deadline / 4);
      stopped_.wait_for(lock, std::chrono::duration<double>(sleep_s));
      for (BlockingCall* call = first_; call != nullptr; call = call->next_) look_at(*call);
    }
  }

  void look_at(BlockingCall& call) {
    const double age_s = now_s() - call.begin_s_;
    if (age_s > deadline) {
      end_process(
          fmt::format("{}: {}: no answer for {:.1f} s, and a thread that waits for it cannot "
                      "be stopped, so this process ends (the drive or the file server hangs: "
                      "see dmesg)",
                      call.what_, call.path_, age_s));
    }
    if (age_s <= kWarnAfterS || call.warned_) return;
    call.warned_ = true;
    log(LogLevel::kWarning,
        fmt::format(
            "{}: {}: no answer for {:.1f} s (the drive or the file server is slow or stuck: "
            "see dmesg)",
            call.what_, call.path_, age_s));
  }

  std::mutex mu_;
  std::condition_variable stopped_;
  BlockingCall* first_ = nullptr;  // Guarded by mu_
  BlockingCall* last_ = nullptr;   // Guarded by mu_
  bool stopping_ = false;          // Guarded by mu_
  std::jthread thread_;            // last: it uses the others
};

BlockingCall::BlockingCall(const char* what, const std::string& path) : what_(what), path_(path) {
  BlockingCalls::instance().add(*this);
}

BlockingCall::~BlockingCall() {
  BlockingCalls::instance().remove(*this);
}

void BlockingCall::set_deadline(double seconds) {
  deadline = seconds;
}

double BlockingCall::deadline_s() {
  return deadline;
}

}  // namespace strata

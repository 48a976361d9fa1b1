// SPDX-License-Identifier: Apache-2.0
// The operations of strata.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "bindings/c/handles.h"
#include "engine/base/threads.h"

namespace strata::c {
namespace {

// Threads: any. It is shared by the handle, the work's thread and those who wait.
struct Work {
  std::mutex mu;
  std::condition_variable is_over_now;
  bool is_cancelled = false;          // Guarded by mu
  std::atomic<bool>* stop = nullptr;  // Guarded by mu; of the call that runs, see StopOnCancel
  bool is_over = false;               // Guarded by mu
  // Guarded by mu; constant once it is over.
  strata_status status = STRATA_OK;
  std::string text;
  std::jthread thread;  // joined by who closes the handle
};

thread_local Work* current = nullptr;

struct Operation : public Object {
  static constexpr const char* kKind = "operation";
  std::shared_ptr<Work> work = std::make_shared<Work>();
};

std::shared_ptr<Work> work_of(const strata_operation* operation, const char* call) {
  std::shared_ptr<Work> work;
  look_at(operation, Operation::kKind, call,
          [&](Object& object) { work = static_cast<Operation&>(object).work; });
  return work;
}

void require_other_thread(const Work& work, const char* call) {
  if (current != &work) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: it is called on the operation's own thread, which would wait for "
                          "itself (call it on another)",
                          call));
}

void wait_for_end(Work& work, double seconds) {
  constexpr double kLongest = 1e9;
  std::unique_lock lock(work.mu);
  const auto is_over = [&] { return work.is_over; };
  if (seconds < 0 || seconds > kLongest) return work.is_over_now.wait(lock, is_over);
  work.is_over_now.wait_for(lock, std::chrono::duration<double>(seconds), is_over);
}

strata_status status_of(strata_work work, void* context) noexcept {
  try {
    return work(context);
  } catch (...) {
    return status_of_exception();
  }
}

void run(Work& work, strata_work call, strata_over over, void* context) {
  current = &work;
  const strata_status status = status_of(call, context);
  std::string text = status == STRATA_OK ? "" : strata_error_text();  // before calls of `over`
  if (over != nullptr) over(context, status);
  const std::lock_guard lock(work.mu);
  work.status = status;
  work.text = std::move(text);
  work.is_over = true;
  work.is_over_now.notify_all();
}

strata_operation_state state_of(Work& work) {
  const std::lock_guard lock(work.mu);
  return {
      .struct_size = 0, .is_over = work.is_over, .status = work.status, .text = work.text.c_str()};
}

}  // namespace

void require_not_cancelled(const char* call) {
  if (current == nullptr) return;
  const std::lock_guard lock(current->mu);
  if (!current->is_cancelled) return;
  throw CallError(STRATA_ERROR_INTERRUPTED,
                  fmt::format("{}: its operation was cancelled (start another one)", call));
}

StopOnCancel::StopOnCancel(std::atomic<bool>& stop) {
  if (current == nullptr) return;
  const std::lock_guard lock(current->mu);
  before_ = std::exchange(current->stop, &stop);
  if (current->is_cancelled) stop = true;
}

StopOnCancel::~StopOnCancel() {
  if (current == nullptr) return;
  const std::lock_guard lock(current->mu);
  current->stop = before_;
}

}  // namespace strata::c

using namespace strata;     // NOLINT: the functions below are outside of any namespace
using namespace strata::c;  // NOLINT

strata_status strata_operation_start(strata_work work, strata_over over, void* context,
                                     strata_operation** operation) {
  return guarded("operation_start", [&] {
    require_given(operation, "operation_start", "operation");
    *operation = nullptr;
    require_given(reinterpret_cast<const void*>(work), "operation_start", "work");
    auto made = std::make_unique<Operation>();
    const std::shared_ptr<Work> shared = made->work;
    const void* handle = add_handle(std::move(made), Operation::kKind);
    try {
      shared->thread =
          start_thread([shared, work, over, context] { run(*shared, work, over, context); });
    } catch (...) {
      remove_handle(handle, Operation::kKind, "operation_start");
      throw;
    }
    *operation = as_handle<strata_operation>(handle);
  });
}

strata_status strata_operation_wait(strata_operation* operation, double seconds,
                                    strata_operation_state* state) {
  return guarded("operation_wait", [&] {
    const Out<strata_operation_state> out(state, "operation_wait", "state");
    const std::shared_ptr<Work> work = work_of(operation, "operation_wait");
    if (std::isnan(seconds)) {
      throw Error(ErrorCode::kConfig,
                  "operation_wait: seconds: it is not a number (give 0 or more, or a negative one "
                  "for no limit)");
    }
    require_other_thread(*work, "operation_wait");
    wait_for_end(*work, seconds);
    out.set(state_of(*work));
  });
}

strata_status strata_operation_cancel(strata_operation* operation) {
  return guarded("operation_cancel", [&] {
    const std::shared_ptr<Work> work = work_of(operation, "operation_cancel");
    const std::lock_guard lock(work->mu);
    work->is_cancelled = true;
    if (work->stop != nullptr) *work->stop = true;
  });
}

strata_status strata_operation_close(strata_operation* operation) {
  return guarded("operation_close", [&] {
    if (operation == nullptr) return;
    const std::shared_ptr<Work> work = work_of(operation, "operation_close");
    require_other_thread(*work, "operation_close");
    remove_handle(operation, Operation::kKind, "operation_close");
    work->thread.join();
  });
}

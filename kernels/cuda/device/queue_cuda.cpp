// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/queue_cuda.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace strata::kernels::cuda {
namespace {

constexpr std::string_view kPrefix = "cuda: ";  // of all errors (runtime.h)

double seconds_between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0.0f;
  if (cudaEventElapsedTime(&milliseconds, from, to) != cudaSuccess) return 0;
  return std::max(0.0, 1e-3 * static_cast<double>(milliseconds));
}

}  // namespace

CudaQueue::CudaQueue(Shared& shared, const char* name, int depth, bool first)
    : shared_(shared), name_(name), slots_(static_cast<size_t>(2 * depth)) {
  STRATA_CHECK(depth >= 1);
  const OnDevice scope(shared_.index, fmt::format("device {}", shared_.index));
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "queue " + name_);
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, first ? greatest : least),
        "queue " + name_);
  check(cudaEventCreateWithFlags(&caller_, cudaEventDisableTiming), "queue " + name_);
  for (Slot& slot : slots_) {
    check(cudaEventCreateWithFlags(&slot.begin, cudaEventBlockingSync), "queue " + name_);
    check(cudaEventCreateWithFlags(&slot.end, cudaEventBlockingSync), "queue " + name_);
  }
  watcher_ = start_thread([this] { watch(); });
}

// What was issued still runs, and may use memory that the caller frees next.
CudaQueue::~CudaQueue() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  watcher_.join();
  const OnDevice scope(shared_.index);
  cudaStreamSynchronize(stream_);
  for (Slot& slot : slots_) {
    cudaEventDestroy(slot.begin);
    cudaEventDestroy(slot.end);
  }
  cudaEventDestroy(caller_);
  cudaStreamDestroy(stream_);
}

// Any call may return what an earlier op failed with, so every error names an op.
void CudaQueue::check_op(cudaError_t error, const Slot& slot) const {
  if (error != cudaSuccess) check(error, place(slot));
}

// An op that fails while it is issued is left: the thread may be a caller's, and go on.
void CudaQueue::check_issued(cudaError_t error, const Slot& slot) const {
  if (error == cudaSuccess) return;
  leave();
  check_op(error, slot);
}

void CudaQueue::leave() const {
  if (!std::exchange(is_within_, false)) return;
  nvtxRangePop();
  restore_device(before_);
}

std::string CudaQueue::place(const Slot& slot) const {
  return fmt::format("{} on {}", slot.name[0] != 0 ? slot.name.data() : "an op", name_);
}

// --- the thread that issues ---------------------------------------------------------------------

void CudaQueue::begin(const char* name, std::span<const MemoryRange>) {
  shared_.failure.throw_if_any();
  Slot& slot = slot_of(issued_ + 1);
  std::strncpy(slot.name.data(), name, slot.name.size() - 1);
  check_op(cudaGetDevice(&before_), slot);
  check_op(cudaSetDevice(shared_.index), slot);
  nvtxRangePushA(slot.name.data());
  is_within_ = true;
  // Events cost a few microseconds between short ops. A busy queue begins an op when it ends the
  // one before.
  slot.follows = !waits_ && is_busy();
  waits_ = false;
  if (!slot.follows) check_issued(cudaEventRecord(slot.begin, stream_), slot);
}

bool CudaQueue::is_busy() {
  const std::lock_guard lock(mu_);
  return completed_ < issued_;
}

int64_t CudaQueue::end() {
  Slot& slot = slot_of(issued_ + 1);
  const cudaError_t error = cudaEventRecord(slot.end, stream_);
  leave();
  shared_.failure.throw_if_any();
  check_op(error, slot);
  ++issued_;
  const std::lock_guard lock(mu_);
  closed_ = issued_;
  changed_.notify_all();
  return closed_;
}

// An op that has completed needs no wait. Otherwise the ring still holds its event: if the other
// queue records it anew just now, this waits for a later op, which is issued already.
void CudaQueue::wait(Queue& other, int64_t count) {
  auto& queue = static_cast<CudaQueue&>(other);
  queue.let_wait(stream_, count);
  waits_ = true;
}

void CudaQueue::let_wait(void* stream, int64_t count) {
  if (completed() >= count) return;
  const Slot& slot = slot_of(count);
  const OnDevice scope(shared_.index, place(slot));
  check_op(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), slot.end, 0), slot);
}

// The event may be recorded anew while an earlier wait for it is still to be met: that wait is for
// what it was then.
void CudaQueue::wait_for(void* stream) {
  const Slot& slot = slot_of(issued_ + 1);
  const OnDevice scope(shared_.index, place(slot));
  check_op(cudaEventRecord(caller_, static_cast<cudaStream_t>(stream)), slot);
  check_op(cudaStreamWaitEvent(stream_, caller_, 0), slot);
  waits_ = true;
}

void CudaQueue::copy(void* to, const void* from, int64_t bytes) {
  check_issued(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
               slot_of(issued_ + 1));
}

// A call of a library, whose errors get the name of the op.
void CudaQueue::named(const std::function<void()>& call) const {
  try {
    call();
  } catch (const Error& error) {
    const Slot& slot = slot_of(issued_ + 1);
    const cudaError_t failed = cudaSetDevice(shared_.index);
    leave();
    check_op(failed, slot);  // A device that failed is the cause, not the call
    const std::string_view cause = std::string_view(error.what()).substr(kPrefix.size());
    throw Error(error.code(), fmt::format("{}{}: {}", kPrefix, place(slot), cause));
  }
}

void CudaQueue::check_launch() const {
  check_issued(cudaGetLastError(), slot_of(issued_ + 1));
}

// --- any thread ---------------------------------------------------------------------------------

int64_t CudaQueue::completed() {
  shared_.failure.throw_if_any();
  const std::lock_guard lock(mu_);
  return completed_;
}

void CudaQueue::sleep(int64_t count, double timeout_s) {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                    [&] { return completed_ >= count || failed_ || woken_; });
  woken_ = false;
}

void CudaQueue::wake() {
  const std::lock_guard lock(mu_);
  woken_ = true;
  changed_.notify_all();
}

Queue::Span CudaQueue::span_of(int64_t count) {
  const std::lock_guard lock(mu_);
  return slot_of(count).span;
}

// --- the watcher --------------------------------------------------------------------------------

void CudaQueue::watch() {
  try {
    cudaSetDevice(shared_.index);  // An error of it comes again with the first op
    while (true) {
      int64_t next = 0;
      {
        std::unique_lock lock(mu_);
        changed_.wait(lock, [&] { return closed_ > completed_ || stopping_; });
        if (closed_ == completed_) return;
        next = completed_ + 1;
      }
      finish(next);
    }
  } catch (...) {
    shared_.failure.set(std::current_exception());
    const std::lock_guard lock(mu_);
    failed_ = true;
    changed_.notify_all();
  }
}

// Waits for the end of op `count`. Events give durations; the clock gives the end of an op that was
// waited for. Ops that had ended before are placed by their distance from the one before.
void CudaQueue::finish(int64_t count) {
  Slot& slot = slot_of(count);
  const cudaError_t state = cudaEventQuery(slot.end);
  if (state != cudaSuccess && state != cudaErrorNotReady) check_op(state, slot);
  const bool is_waited_for = state == cudaErrorNotReady;
  if (is_waited_for) check_op(cudaEventSynchronize(slot.end), slot);
  double end_s = now_s();
  if (!is_waited_for && count > 1) {
    const Slot& before = slot_of(count - 1);
    end_s = std::min(end_s, before.span.end_s + seconds_between(before.end, slot.end));
  }
  const double duration_s =
      seconds_between(slot.follows ? slot_of(count - 1).end : slot.begin, slot.end);
  const std::lock_guard lock(mu_);
  slot.span = {end_s - duration_s, end_s};
  completed_ = count;
  changed_.notify_all();
}

}  // namespace strata::kernels::cuda

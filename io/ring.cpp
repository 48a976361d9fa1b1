// SPDX-License-Identifier: Apache-2.0
#include "io/ring.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "engine/base/check.h"
#include "engine/base/environment.h"
#include "io/ring_backend.h"

namespace strata::io {
namespace {

constexpr uint32_t kMaxRefusals =
    100;  // EAGAIN or EINTR in a row, about a second with the pauses below
constexpr double kRefusalPauseS =
    10e-3;                             // the longest pause before a refused request is tried again
constexpr double kCancelGraceS = 1.0;  // how long a cancelled request may take to come back
constexpr double kCloseGraceS = 3.0;   // a request's extra time in a ring that closes
constexpr double kLongestWaitS = 1.0;  // so that deadlines are checked
constexpr uint64_t kMaxPieceBytes = 1 << 30;  // read(2) moves at most 2 GiB - 4 KiB

std::unique_ptr<RingBackend> make_backend(const RingOptions& options) {
  switch (options.backend) {
    case Backend::kThreads:
      return make_threads_backend(options);
    case Backend::kSimulated:
      return make_simulated_backend(options);
    case Backend::kUring:
    case Backend::kAuto:
      break;
  }
  UringResult uring = make_uring_backend(options);
  if (uring.backend != nullptr) return std::move(uring.backend);
  if (options.backend == Backend::kUring) {
    throw Error(ErrorCode::kIo, "io_uring is not available: " + uring.refusal);
  }
  const std::string text =
      "io_uring is not available, a thread pool does the I/O: " + uring.refusal;
  if (options.notices != nullptr) {
    options.notices->once(LogLevel::kWarning, text);
  } else {
    log(LogLevel::kWarning, text);
  }
  return make_threads_backend(options);
}

std::string describe(const RingRequest& request, const RingFile& file, double age_s) {
  char text[256];
  std::snprintf(text, sizeof text, "%s of %llu bytes at offset %llu of %s is %.1f s old",
                name_of(request.direction), static_cast<unsigned long long>(request.bytes),
                static_cast<unsigned long long>(request.offset), file.name.c_str(), age_s);
  return text;
}

}  // namespace

const char* name_of(FaultKind kind) {
  static constexpr const char* kNames[] = {"EIO",    "ENOSPC",      "short", "zero",
                                           "EAGAIN", "EINTR",       "torn",  "flipped",
                                           "stale",  "misdirected", "hang"};
  return kNames[static_cast<int>(kind)];
}

Ring::Ring(const RingOptions& options)
    : depth_(options.depth),
      alignment_(options.alignment),
      warn_after_s_(options.warn_after_s),
      deadline_s_(options.deadline_s),
      files_(options.files) {
  STRATA_CHECK(depth_ > 0 && depth_ <= 1024 && !files_.empty() && alignment_ > 0);
  backend_ = make_backend(options);
  slots_.resize(depth_);
  finished_.reserve(depth_);
  completions_.resize(depth_);
  free_slots_.reserve(depth_);
  for (uint32_t slot = depth_; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

Ring::~Ring() {
  for (uint32_t slot = 0; slot < depth_; ++slot) {
    if (slots_[slot].in_backend) backend_->cancel(slot);
  }
  const double limit_s = closing_limit_s();
  const double begin_s = now_s();
  double since_s = begin_s;
  bool reported = false;
  const Environment* const environment = Environment::current();
  while (held() > 0) {
    backend_->wait(0.1);
    const size_t count = backend_->reap(completions_);
    for (size_t i = 0; i < count; ++i) slots_[completions_[i].slot].in_backend = false;
    const bool soon =
        environment != nullptr && environment->closes_now() && now_s() > begin_s + kCloseGraceS;
    if (held() > 0 && !reported && (soon || now_s() > limit_s)) {
      reported = true;
      report_hang(hang());
    }
    if (now_s() - since_s > warn_after_s_) {
      log(LogLevel::kWarning, "closing " + files_[0].name + ": waiting for " +
                                  std::to_string(held()) +
                                  " requests that the kernel has not given back");
      since_s = now_s();
    }
  }
}

size_t Ring::held() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(),
                                           [](const Slot& slot) { return slot.in_backend; }));
}

// A ring that closes waits for each request until its deadline, and kCloseGraceS longer.
double Ring::closing_limit_s() const {
  double limit_s = now_s();
  for (const Slot& slot : slots_) {
    if (slot.in_backend) limit_s = std::max(limit_s, slot.asked.started_s + deadline_s_);
  }
  return limit_s + kCloseGraceS;
}

Error Ring::hang() const {
  const Slot& slot =
      *std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) { return each.in_backend; });
  return Error(ErrorCode::kDeadline,
               describe(slot.asked, files_[slot.asked.file], now_s() - slot.asked.started_s) +
                   ", and the kernel still uses its memory, so this process must end (the drive "
                   "hangs: see dmesg)");
}

const char* Ring::backend_name() const {
  return backend_->name();
}

double Ring::now_s() const {
  return backend_->now_s();
}

void Ring::submit(RingRequest* request) {
  STRATA_CHECK(!free_slots_.empty() && request->file < files_.size() && request->bytes > 0);
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  ++in_flight_;
  request->outcome = RingRequest::Outcome::kDone;
  request->error_number = 0;
  request->memory_in_use = false;
  request->bytes_moved = 0;
  request->started_s = now_s();
  slots_[slot] = Slot{};
  slots_[slot].request = request;
  slots_[slot].asked = *request;
  start(slot);
}

void Ring::start(uint32_t slot) {
  const RingRequest& request = *slots_[slot].request;
  slots_[slot].in_backend = true;
  const uint64_t rest = request.bytes - request.bytes_moved;
  backend_->start({.slot = slot,
                   .direction = request.direction,
                   .file = request.file,
                   .offset = request.offset + request.bytes_moved,
                   .data = static_cast<char*>(request.data) + request.bytes_moved,
                   .bytes = static_cast<uint32_t>(std::min(rest, kMaxPieceBytes))});
}

void Ring::flush() {
  backend_->flush();
}

size_t Ring::poll(std::span<RingRequest*> finished) {
  if (parked_ > 0) retry_parked();
  backend_->flush();
  size_t count = backend_->reap(completions_);
  for (size_t i = 0; i < count; ++i) settle(completions_[i].slot, completions_[i].result);
  if (in_flight_ > 0) check_deadlines();
  count = std::min(finished.size(), finished_.size());
  std::copy_n(finished_.begin(), count, finished.begin());
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

void Ring::wait(double timeout_s) {
  if (!finished_.empty()) return;
  timeout_s = std::clamp(timeout_s, 0.0, kLongestWaitS);
  if (parked_ > 0) timeout_s = std::min(timeout_s, 1e-3);
  timeout_s = std::min(timeout_s, deadline_s_ / 4);
  backend_->wait(timeout_s);
}

void Ring::wake() {
  backend_->wake();
}

// Decides what one completion of the backend means. All rules for result codes are here.
void Ring::settle(uint32_t slot, int64_t result) {
  Slot& state = slots_[slot];
  state.in_backend = false;
  if (state.request == nullptr) {  // given up earlier; the kernel has now released the memory
    --lost_;
    free_slots_.push_back(slot);
    return;
  }
  if (result > 0) {
    advance(slot, static_cast<uint64_t>(result));
    return;
  }
  if (state.cancelled_at_s >= 0) {
    finish(slot, RingRequest::Outcome::kDeadline, ETIMEDOUT);
  } else if (result == -EAGAIN || result == -EINTR || result == -ECANCELED) {
    if (++state.refusals > kMaxRefusals) {
      finish(slot, RingRequest::Outcome::kErrno, static_cast<int>(-result));
    } else {
      park(slot);
    }
  } else if (result == 0) {
    advance(slot, 0);
  } else {
    finish(slot, RingRequest::Outcome::kErrno, static_cast<int>(-result));
  }
}

void Ring::advance(uint32_t slot, uint64_t moved) {
  Slot& state = slots_[slot];
  RingRequest& request = *state.request;
  const uint64_t rest = request.bytes - request.bytes_moved;
  if (moved >= rest) {
    request.bytes_moved = request.bytes;
    finish(slot, RingRequest::Outcome::kDone, 0);
    return;
  }
  if (state.cancelled_at_s >= 0) {
    finish(slot, RingRequest::Outcome::kDeadline, ETIMEDOUT);
    return;
  }
  // O_DIRECT can resume only at a multiple of the alignment, so some bytes are moved twice.
  moved = moved / alignment_ * alignment_;
  request.bytes_moved += moved;
  if (moved > 0) {
    state.stalls = 0;
    state.refusals = 0;
  } else if (++state.stalls >= 2) {
    finish(slot, RingRequest::Outcome::kNoProgress, 0);
    return;
  }
  start(slot);
}

void Ring::finish(uint32_t slot, RingRequest::Outcome outcome, int error_number) {
  Slot& state = slots_[slot];
  RingRequest* request = state.request;
  request->outcome = outcome;
  request->error_number = error_number;
  request->finished_s = now_s();
  request->memory_in_use = state.in_backend;
  finished_.push_back(request);
  --in_flight_;
  state.request = nullptr;
  if (state.parked) --parked_;
  state.parked = false;
  if (state.in_backend) {
    ++lost_;
  } else {
    free_slots_.push_back(slot);
  }
}

// Makes a refused request wait before its next try: 0.1 ms at first, then twice as long each time.
void Ring::park(uint32_t slot) {
  Slot& state = slots_[slot];
  const double pause_s =
      std::min(kRefusalPauseS, 1e-4 * static_cast<double>(1u << std::min(state.refusals, 8u)));
  state.parked = true;
  state.retry_at_s = now_s() + pause_s;
  ++parked_;
}

void Ring::retry_parked() {
  const double now = now_s();
  for (uint32_t slot = 0; slot < depth_; ++slot) {
    Slot& state = slots_[slot];
    if (!state.parked || state.retry_at_s > now) continue;
    state.parked = false;
    --parked_;
    start(slot);
  }
}

void Ring::check_deadlines() {
  const double now = now_s();
  if (now < next_deadline_check_s_) return;
  next_deadline_check_s_ = now + std::min({0.25, deadline_s_ / 4, warn_after_s_ / 4});
  for (uint32_t slot = 0; slot < depth_; ++slot) {
    Slot& state = slots_[slot];
    if (state.request == nullptr) continue;
    const double age_s = now - state.request->started_s;
    if (age_s > warn_after_s_ && !state.warned) {
      state.warned = true;
      log(LogLevel::kWarning, describe(*state.request, files_[state.request->file], age_s) +
                                  " (the drive is slow or stuck: see dmesg)");
    }
    if (age_s <= deadline_s_) continue;
    if (!state.in_backend) {
      finish(slot, RingRequest::Outcome::kDeadline, ETIMEDOUT);
    } else if (state.cancelled_at_s < 0) {
      state.cancelled_at_s = now;
      backend_->cancel(slot);
    } else if (now - state.cancelled_at_s > std::min(kCancelGraceS, deadline_s_)) {
      finish(slot, RingRequest::Outcome::kDeadline, ETIMEDOUT);
    }
  }
}

}  // namespace strata::io

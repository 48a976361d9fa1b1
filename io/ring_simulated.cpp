// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/units.h"
#include "io/ring_backend.h"

namespace strata::io {
namespace {

// Fills the memory of a read until it completes, so that early use is noticed.
constexpr int kUnreadByte = 0xDB;

// Simulates a drive over real files. Bytes move when a request completes, so a buffer that is
// reused too early corrupts data, as with a real drive. Latencies are random with a seed, so
// requests overtake each other. With virtual time nothing sleeps: wait() moves the clock to the
// next completion.
class SimulatedBackend final : public RingBackend {
 public:
  explicit SimulatedBackend(const RingOptions& options)
      : options_(options.simulated),
        alignment_(options.alignment),
        random_(options.simulated.seed) {
    for (const RingFile& file : options.files) fds_.push_back(file.fd);
    flying_.reserve(options.depth);
  }

  const char* name() const override { return "simulated"; }
  double now_s() const override { return options_.virtual_time ? virtual_now_s_ : strata::now_s(); }

  void start(const Piece& piece) override {
    const uint64_t index = started_++;
    if (options_.started != nullptr) ++*options_.started;
    const SimulatedFault* fault = fault_at(index);
    if (fault != nullptr && options_.injected != nullptr) ++*options_.injected;
    const double latency_s =
        options_.latency_s_min +
        random_.uniform(index) * (options_.latency_s_max - options_.latency_s_min);
    const bool slow =
        index >= options_.slow_from &&
        (options_.slow_file < 0 || static_cast<uint32_t>(options_.slow_file) == piece.file);
    const double slowness = slow ? options_.slow_factor : 1;
    const bool hangs = fault != nullptr && fault->kind == FaultKind::kHang;
    flying_.push_back(
        {.piece = piece,
         .index = index,
         .due_s = hangs ? std::numeric_limits<double>::infinity() : now_s() + latency_s * slowness,
         .fault = fault});
    const bool stale = fault != nullptr && fault->kind == FaultKind::kStale;
    if (piece.direction == Direction::kRead && !stale) {
      std::memset(piece.data, kUnreadByte, piece.bytes);
    }
    if (options_.most_of_a_file != nullptr) note_most_of(piece.file);
  }

  void flush() override {}

  size_t reap(std::span<Completion> completions) override {
    size_t count = 0;
    while (count < completions.size()) {
      const auto first = earliest();
      if (first == flying_.end() || first->due_s > now_s()) break;
      completions[count++] = {first->piece.slot, carry_out(*first)};
      *first = flying_.back();
      flying_.pop_back();
    }
    return count;
  }

  void wait(double timeout_s) override {
    const auto first = earliest();
    const double due_s =
        first == flying_.end() ? std::numeric_limits<double>::infinity() : first->due_s;
    const double until_s = std::min(due_s, now_s() + timeout_s);
    std::unique_lock lock(mu_);
    if (options_.virtual_time) {
      if (!woken_) virtual_now_s_ = std::max(virtual_now_s_, until_s);
    } else if (until_s > now_s()) {
      woken_cv_.wait_for(lock, std::chrono::duration<double>(until_s - now_s()),
                         [this] { return woken_; });
    }
    woken_ = false;
  }

  void wake() override {
    {
      const std::lock_guard lock(mu_);
      woken_ = true;
    }
    woken_cv_.notify_one();
  }

  void cancel(uint32_t slot) override {
    for (Flight& flight : flying_) {
      if (flight.piece.slot != slot) continue;
      flight.cancelled = true;
      flight.due_s = now_s();
    }
  }

 private:
  struct Flight {
    Piece piece;
    uint64_t index = 0;
    double due_s = 0;
    const SimulatedFault* fault = nullptr;  // one of options_; may be null
    bool cancelled = false;
  };

  const SimulatedFault* fault_at(uint64_t index) const {
    for (const SimulatedFault& fault : options_.faults) {
      if (index >= fault.index && index - fault.index < fault.count) return &fault;
    }
    return nullptr;
  }

  void note_most_of(uint32_t file) {
    const auto count = std::count_if(flying_.begin(), flying_.end(), [file](const Flight& flight) {
      return flight.piece.file == file;
    });
    *options_.most_of_a_file = std::max(*options_.most_of_a_file, static_cast<uint32_t>(count));
  }

  // Of equal times, the request that started first completes first, so that a seed fixes the order.
  std::vector<Flight>::iterator earliest() {
    return std::min_element(flying_.begin(), flying_.end(), [](const Flight& a, const Flight& b) {
      return a.due_s != b.due_s ? a.due_s < b.due_s : a.index < b.index;
    });
  }

  int64_t carry_out(const Flight& flight) const {
    if (flight.cancelled) return -ECANCELED;
    Piece piece = flight.piece;
    if (piece.offset % alignment_ != 0) return -EINVAL;  // as with O_DIRECT
    if (flight.fault == nullptr) return move(piece);
    switch (flight.fault->kind) {
      case FaultKind::kEio:
        return -flight.fault->error_number;
      case FaultKind::kEnospc:
        return -ENOSPC;
      case FaultKind::kEagain:
        return -EAGAIN;
      case FaultKind::kEintr:
        return -EINTR;
      case FaultKind::kZero:
        return 0;
      case FaultKind::kShort:
        return move_short(piece, random_.at(flight.index, 1)[0]);
      case FaultKind::kTorn:
        piece.bytes /= 2;
        return move(piece) < 0 ? -EIO : flight.piece.bytes;
      case FaultKind::kFlipped:
        return move_flipped(piece, random_.at(flight.index, 1)[0]);
      case FaultKind::kStale:
        return piece.bytes;
      case FaultKind::kMisdirected:
        piece.offset =
            piece.offset >= piece.bytes ? piece.offset - piece.bytes : piece.offset + piece.bytes;
        return move(piece) < 0 ? -EIO : piece.bytes;
      case FaultKind::kHang:
        break;
    }
    return -EIO;
  }

  int64_t move(const Piece& piece) const {
    const int fd = fds_[piece.file];
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t moved = piece.direction == Direction::kRead
                              ? pread(fd, piece.data, piece.bytes, offset)
                              : pwrite(fd, piece.data, piece.bytes, offset);
    return moved < 0 ? -errno : moved;
  }

  // Moves half of the bytes and reports a few less, so that the end lies within a sector.
  int64_t move_short(Piece piece, uint32_t draw) const {
    piece.bytes /= 2;
    const int64_t moved = move(piece);
    return moved <= 1 ? moved : moved - 1 - draw % std::min<int64_t>(moved - 1, 511);
  }

  // Inverts one bit of what is moved. A write sends a changed copy, as others may read the caller's
  // memory meanwhile.
  int64_t move_flipped(Piece piece, uint32_t draw) const {
    const uint32_t at = draw / 8 % piece.bytes;
    const char bit = static_cast<char>(1u << (draw % 8));
    if (piece.direction == Direction::kRead) {
      const int64_t moved = move(piece);
      static_cast<char*>(piece.data)[at] ^= bit;
      return moved;
    }
    const std::unique_ptr<char, decltype(&std::free)> copy(
        static_cast<char*>(
            std::aligned_alloc(kPageBytes, static_cast<size_t>(round_up(piece.bytes, kPageBytes)))),
        &std::free);
    std::memcpy(copy.get(), piece.data, piece.bytes);
    copy.get()[at] ^= bit;
    piece.data = copy.get();
    return move(piece);
  }

  // Constant after construction.
  const SimulatedOptions options_;
  const uint32_t alignment_;
  const Philox random_;
  std::vector<int> fds_;

  // Owned by the lane.
  std::vector<Flight> flying_;
  uint64_t started_ = 0;
  double virtual_now_s_ = 0;

  std::mutex mu_;
  std::condition_variable woken_cv_;
  bool woken_ = false;  // Guarded by mu_
};

}  // namespace

std::unique_ptr<RingBackend> make_simulated_backend(const RingOptions& options) {
  return std::make_unique<SimulatedBackend>(options);
}

}  // namespace strata::io

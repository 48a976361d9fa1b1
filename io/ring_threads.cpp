// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "io/ring_backend.h"

namespace strata::io {
namespace {

constexpr uint32_t kMaxThreads = 32;

// A circular queue of fixed capacity.
template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(size_t capacity) : items_(capacity) {}
  bool empty() const { return head_ == tail_; }
  void push(const T& item) { items_[tail_++ % items_.size()] = item; }
  T pop() { return items_[head_++ % items_.size()]; }

  // Removes the item for which `matches` holds and keeps the order of the rest.
  template <class Matches>
  bool remove(Matches matches) {
    for (uint64_t i = head_; i != tail_; ++i) {
      if (!matches(items_[i % items_.size()])) continue;
      for (uint64_t j = i; j + 1 != tail_; ++j)
        items_[j % items_.size()] = items_[(j + 1) % items_.size()];
      --tail_;
      return true;
    }
    return false;
  }

 private:
  std::vector<T> items_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

// pread and pwrite on a pool of threads, one for each request in flight up to kMaxThreads.
class ThreadsBackend final : public RingBackend {
 public:
  explicit ThreadsBackend(const RingOptions& options)
      : work_(options.depth), finished_(options.depth) {
    for (const RingFile& file : options.files) fds_.push_back(file.fd);
    const uint32_t count = std::min(options.depth, kMaxThreads);
    threads_.reserve(count);
    try {
      for (uint32_t i = 0; i < count; ++i) threads_.push_back(start_thread([this] { run(); }));
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadsBackend() override { stop(); }

  const char* name() const override { return "threads"; }
  double now_s() const override { return strata::now_s(); }

  void start(const Piece& piece) override {
    {
      const std::lock_guard lock(mu_);
      work_.push(piece);
    }
    work_ready_.notify_one();
  }

  void flush() override {}

  size_t reap(std::span<Completion> completions) override {
    const std::lock_guard lock(mu_);
    size_t count = 0;
    while (count < completions.size() && !finished_.empty()) completions[count++] = finished_.pop();
    return count;
  }

  void wait(double timeout_s) override {
    std::unique_lock lock(mu_);
    finished_ready_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                             [this] { return !finished_.empty() || woken_; });
    woken_ = false;
  }

  void wake() override {
    {
      const std::lock_guard lock(mu_);
      woken_ = true;
    }
    finished_ready_.notify_one();
  }

  // Cancels only a piece that no thread has begun.
  void cancel(uint32_t slot) override {
    const std::lock_guard lock(mu_);
    if (work_.remove([slot](const Piece& piece) { return piece.slot == slot; })) {
      finished_.push({slot, -ECANCELED});
    }
  }

 private:
  void run() {
    std::unique_lock lock(mu_);
    for (;;) {
      work_ready_.wait(lock, [this] { return !work_.empty() || stopping_; });
      if (work_.empty()) return;
      const Piece piece = work_.pop();
      lock.unlock();
      const Completion completion = {piece.slot, carry_out(piece)};
      lock.lock();
      finished_.push(completion);
      finished_ready_.notify_one();
    }
  }

  int64_t carry_out(const Piece& piece) const {
    const int fd = fds_[piece.file];
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t moved = piece.direction == Direction::kRead
                              ? pread(fd, piece.data, piece.bytes, offset)
                              : pwrite(fd, piece.data, piece.bytes, offset);
    return moved < 0 ? -errno : moved;
  }

  void stop() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
    }
    work_ready_.notify_all();
    threads_.clear();  // joins
  }

  std::vector<int> fds_;  // Constant after construction
  std::mutex mu_;
  std::condition_variable work_ready_;
  std::condition_variable finished_ready_;
  FixedQueue<Piece> work_;           // Guarded by mu_
  FixedQueue<Completion> finished_;  // Guarded by mu_
  bool woken_ = false;               // Guarded by mu_
  bool stopping_ = false;            // Guarded by mu_
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<RingBackend> make_threads_backend(const RingOptions& options) {
  return std::make_unique<ThreadsBackend>(options);
}

}  // namespace strata::io

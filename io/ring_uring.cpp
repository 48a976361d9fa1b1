// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "io/notices.h"
#include "io/ring_backend.h"

namespace strata::io {
namespace {

constexpr uint64_t kWakeToken = ~uint64_t{0};
constexpr uint64_t kCancelToken = ~uint64_t{1};
constexpr uint64_t kMaxIovecBytes = uint64_t{1}
                                    << 30;  // the kernel's limit for a registered buffer

// Room for every slot, one cancellation of each, and the wake-up read; the kernel rounds up.
constexpr unsigned entries_of(uint32_t depth) {
  return depth * 2 + 2;
}

__kernel_timespec timespec_of(double seconds) {
  __kernel_timespec ts{};
  ts.tv_sec = static_cast<long long>(seconds);
  ts.tv_nsec = static_cast<long long>((seconds - static_cast<double>(ts.tv_sec)) * 1e9);
  return ts;
}

// The io_uring backend. The lane enters the kernel once for a batch of requests and finds
// completions in shared memory. Other threads wake it through an eventfd, on which a read is always
// outstanding. Files are not registered: Linux 6.18.44 never let go of registered files that a ring
// had when it ended, so that the space of scratch stayed taken until the system restarted.
class UringBackend final : public RingBackend {
 public:
  explicit UringBackend(const RingOptions& options) : depth_(options.depth) {
    queued_.reserve(entries_of(depth_) * 2);
    refused_.reserve(depth_);
  }

  ~UringBackend() override {
    if (!ring_open_) return;
    retire_wake_read();
    io_uring_queue_exit(&ring_);
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  // Returns an errno value, or 0.
  int open(const RingOptions& options, std::string* step) {
    *step = "io_uring_setup";
    io_uring_params params{};
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    int rc = io_uring_queue_init_params(entries_of(depth_), &ring_, &params);
    if (rc == -EINVAL) {  // kernels before 5.19
      params = io_uring_params{};
      rc = io_uring_queue_init_params(entries_of(depth_), &ring_, &params);
    }
    if (rc < 0) return -rc;
    ring_open_ = true;
    // Before 5.11, a timed wait would put entries of its own into the queue.
    if ((params.features & IORING_FEAT_EXT_ARG) == 0) return ENOSYS;
    *step = "eventfd";
    wake_fd_ = eventfd(0, EFD_CLOEXEC);
    if (wake_fd_ < 0) return errno;

    for (const RingFile& file : options.files) fds_.push_back(file.fd);
    register_regions(options);
    return 0;
  }

  const char* name() const override { return "io_uring"; }
  double now_s() const override { return strata::now_s(); }

  void start(const Piece& piece) override {
    if (broken_errno_ != 0) {
      refused_.push_back({piece.slot, -broken_errno_});
      return;
    }
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    STRATA_CHECK(sqe != nullptr);  // cancel() leaves room for every slot
    const int fd = fds_[piece.file];
    const int buffer = buffer_of(piece);
    if (piece.direction == Direction::kRead) {
      if (buffer >= 0) {
        io_uring_prep_read_fixed(sqe, fd, piece.data, piece.bytes, piece.offset, buffer);
      } else {
        io_uring_prep_read(sqe, fd, piece.data, piece.bytes, piece.offset);
      }
    } else if (buffer >= 0) {
      io_uring_prep_write_fixed(sqe, fd, piece.data, piece.bytes, piece.offset, buffer);
    } else {
      io_uring_prep_write(sqe, fd, piece.data, piece.bytes, piece.offset);
    }
    io_uring_sqe_set_data64(sqe, piece.slot);
    queued_.push_back(piece.slot);
  }

  void flush() override {
    if (broken_errno_ != 0) return;
    if (!wake_armed_) arm_wake_read();
    while (!queued_.empty()) {
      const int rc = io_uring_submit(&ring_);
      if (rc > 0) {
        consumed(static_cast<uint32_t>(rc));
        continue;
      }
      // The kernel is busy: the remaining entries stay queued for the next flush.
      if (rc == 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR) return;
      give_up(-rc);
      return;
    }
  }

  size_t reap(std::span<Completion> completions) override {
    size_t count = 0;
    while (!refused_.empty() && count < completions.size()) {
      completions[count++] = refused_.back();
      refused_.pop_back();
    }
    io_uring_cqe* cqe = nullptr;
    while (count < completions.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const uint64_t token = io_uring_cqe_get_data64(cqe);
      if (token == kWakeToken) {
        wake_armed_ = false;
      } else if (token != kCancelToken) {
        completions[count++] = {static_cast<uint32_t>(token), cqe->res};
      }
      io_uring_cqe_seen(&ring_, cqe);
    }
    return count;
  }

  void wait(double timeout_s) override {
    flush();
    if (!refused_.empty()) return;
    if (!queued_.empty())
      timeout_s = std::min(timeout_s, 1e-3);  // the kernel was busy: ask again soon
    __kernel_timespec ts = timespec_of(timeout_s);
    io_uring_cqe* cqe = nullptr;
    // -ETIME, -EINTR and success all mean the same here: look again.
    (void)io_uring_wait_cqe_timeout(&ring_, &cqe, &ts);
  }

  void wake() override {
    const uint64_t one = 1;
    // This write fails only when the counter is full; then a wake-up is already pending.
    (void)!write(wake_fd_, &one, sizeof one);
  }

  void cancel(uint32_t slot) override {
    if (broken_errno_ != 0 || io_uring_sq_space_left(&ring_) <= depth_ + 1) return;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_cancel64(sqe, slot, 0);
    io_uring_sqe_set_data64(sqe, kCancelToken);
    queued_.push_back(kCancelToken);
    flush();
  }

 private:
  struct Buffer {
    const char* begin;
    const char* end;
  };

  // Notes that the kernel took the oldest `count` submissions.
  void consumed(uint32_t count) { queued_.erase(queued_.begin(), queued_.begin() + count); }

  // io_uring_enter fails for good: fails the pieces that the kernel never took. Those that it holds
  // still complete.
  void give_up(int error) {
    broken_errno_ = error;
    for (const uint64_t token : queued_) {
      if (token < depth_) refused_.push_back({static_cast<uint32_t>(token), -error});
    }
    queued_.clear();
  }

  void arm_wake_read() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return;
    io_uring_prep_read(sqe, wake_fd_, &wake_value_, sizeof wake_value_, 0);
    io_uring_sqe_set_data64(sqe, kWakeToken);
    wake_armed_ = true;
    queued_.push_back(kWakeToken);
  }

  // Ends the wake-up read. Its buffer is a member, so the kernel must be done with it before the
  // object is destroyed.
  void retire_wake_read() {
    if (!wake_armed_ || broken_errno_ != 0) return;
    wake();
    Completion none[1];
    for (int tries = 0; tries < 1000 && wake_armed_; ++tries) {
      (void)reap(none);
      if (wake_armed_) wait(10e-3);
    }
  }

  void register_regions(const RingOptions& options) {
    std::vector<iovec> iovecs;
    uint64_t bytes = 0;
    for (const MemoryRegion& region : options.regions) {
      for (uint64_t at = 0; at < region.bytes; at += kMaxIovecBytes) {
        char* begin = static_cast<char*>(region.data) + at;
        const uint64_t length = std::min(kMaxIovecBytes, region.bytes - at);
        iovecs.push_back({begin, length});
        buffers_.push_back({begin, begin + length});
        bytes += length;
      }
    }
    if (iovecs.empty()) return;
    const int rc =
        io_uring_register_buffers(&ring_, iovecs.data(), static_cast<unsigned>(iovecs.size()));
    if (rc == 0) return;
    buffers_.clear();
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    std::string text = "io_uring: memory is not registered, transfers cost more CPU time: " +
                       std::string(std::strerror(-rc));
    if (rc == -ENOMEM) {
      text += "; RLIMIT_MEMLOCK is " + format_bytes(static_cast<int64_t>(limit.rlim_cur)) +
              ", each channel needs " + format_bytes(static_cast<int64_t>(bytes)) +
              " (raise it: ulimit -l)";
    }
    if (options.notices != nullptr) {
      options.notices->once(LogLevel::kWarning, text);
    } else {
      log(LogLevel::kWarning, text);
    }
  }

  // The registered buffer that holds the whole piece, or -1.
  int buffer_of(const Piece& piece) const {
    const char* begin = static_cast<const char*>(piece.data);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (begin >= buffers_[i].begin && begin + piece.bytes <= buffers_[i].end)
        return static_cast<int>(i);
    }
    return -1;
  }

  // Constant after construction.
  const uint32_t depth_;
  std::vector<int> fds_;
  std::vector<Buffer> buffers_;
  bool ring_open_ = false;
  int wake_fd_ = -1;

  // Owned by the lane.
  io_uring ring_{};
  std::vector<uint64_t>
      queued_;  // tokens of submissions that the kernel has not taken, oldest first
  std::vector<Completion> refused_;  // completions of pieces that the kernel never took
  int broken_errno_ = 0;
  bool wake_armed_ = false;
  uint64_t wake_value_ = 0;
};

std::string advice_on_refusal(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "a container's seccomp profile or sysctl kernel.io_uring_disabled forbids it";
    case ENOSYS:
      return "the kernel does not have it, or is older than 5.11: use a newer one";
    case ENOMEM:
      return "RLIMIT_MEMLOCK is too small: ulimit -l";
    default:
      return "";
  }
}

}  // namespace

UringResult make_uring_backend(const RingOptions& options) {
  auto backend = std::make_unique<UringBackend>(options);
  std::string step;
  const int error = backend->open(options, &step);
  if (error == 0) return {std::move(backend), ""};
  std::string refusal = step + ": " + std::strerror(error);
  const std::string advice = advice_on_refusal(error);
  if (!advice.empty()) refusal += " (" + advice + ")";
  return {nullptr, refusal};
}

}  // namespace strata::io

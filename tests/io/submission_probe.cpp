// SPDX-License-Identifier: Apache-2.0
#include "submission_probe.h"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>

namespace strata::io {
namespace {

struct Notes {
  std::mutex mu;
  bool active = false;
  unsigned most_at_once = 0;
  uint64_t good_calls = 0;  // left
  uint64_t partial_calls = 0;
  std::vector<Submission> taken;
};
Notes notes;

// Wake-ups and cancellations have tokens that are no slots.
constexpr uint64_t kMostSlots = 1 << 16;

void note(const io_uring* ring, const io_uring_sqe& entry) {
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const bool fixed_buffer =
      entry.opcode == IORING_OP_READ_FIXED || entry.opcode == IORING_OP_WRITE_FIXED;
  const bool write = entry.opcode == IORING_OP_WRITE || entry.opcode == IORING_OP_WRITE_FIXED;
  if (entry.user_data >= kMostSlots) return;
  notes.taken.push_back({.ring = ring,
                         .write = write,
                         .fixed_buffer = fixed_buffer,
                         .fixed_file = (entry.flags & IOSQE_FIXED_FILE) != 0,
                         .offset = entry.off,
                         .bytes = entry.len,
                         .at_s = now_s});
}

}  // namespace

SubmissionProbe::SubmissionProbe(unsigned most_at_once, uint64_t good_calls) {
  const std::lock_guard lock(notes.mu);
  notes.active = true;
  notes.most_at_once = most_at_once;
  notes.good_calls = good_calls;
  notes.partial_calls = 0;
  notes.taken.clear();
}

SubmissionProbe::~SubmissionProbe() {
  const std::lock_guard lock(notes.mu);
  notes.active = false;
}

std::vector<Submission> SubmissionProbe::taken() const {
  const std::lock_guard lock(notes.mu);
  return notes.taken;
}

uint64_t SubmissionProbe::partial_calls() const {
  const std::lock_guard lock(notes.mu);
  return notes.partial_calls;
}

}  // namespace strata::io

// The linker puts these two in the place of liburing's (--wrap).
extern "C" int __real_io_uring_submit(io_uring* ring);
extern "C" int __wrap_io_uring_submit(io_uring* ring);

int __wrap_io_uring_submit(io_uring* ring) {
  using strata::io::notes;
  const std::lock_guard lock(notes.mu);
  if (!notes.active) return __real_io_uring_submit(ring);
  if (notes.good_calls == 0) return -EPERM;
  --notes.good_calls;
  io_uring_sq& queue = ring->sq;
  const unsigned tail = queue.sqe_tail;
  const unsigned head = queue.sqe_head;
  if (notes.most_at_once > 0) queue.sqe_tail = head + std::min(tail - head, notes.most_at_once);
  const unsigned end = queue.sqe_tail;
  for (unsigned at = head; at != end; ++at) {
    strata::io::note(ring, queue.sqes[at & *queue.kring_mask]);
  }
  const int taken = __real_io_uring_submit(ring);
  queue.sqe_tail = tail;
  notes.partial_calls += end == tail ? 0 : 1;
  return taken;
}

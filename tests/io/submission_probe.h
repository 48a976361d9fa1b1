// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace strata::io {

// One entry of a submission queue, as the kernel was given it.
struct Submission {
  const void* ring = nullptr;
  bool write = false;
  bool fixed_buffer = false;
  bool fixed_file = false;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  double at_s = 0;  // of the time of day
};

// Stands between the rings of this program and io_uring_submit() while it lives: notes every read
// and write that the kernel takes, and may hand over fewer entries than there are, as a kernel does
// that runs out of memory. One at a time. Threads: any.
class SubmissionProbe {
 public:
  // At most so many entries in one call, 0: all; and every call but the first so many fails with
  // EPERM, taking nothing.
  explicit SubmissionProbe(unsigned most_at_once = 0, uint64_t good_calls = ~uint64_t{0});
  ~SubmissionProbe();
  SubmissionProbe(const SubmissionProbe&) = delete;
  SubmissionProbe& operator=(const SubmissionProbe&) = delete;

  // In the order of submission.
  std::vector<Submission> taken() const;
  // Calls that left some entries in the queue.
  uint64_t partial_calls() const;
};

}  // namespace strata::io

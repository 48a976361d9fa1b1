// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace strata::io {

// Stands between this program and pread() and pwrite() of one file while it lives: they wait until
// release(), as calls to a drive that hangs. One at a time. Threads: any.
class HeldCalls {
 public:
  explicit HeldCalls(int fd);
  ~HeldCalls();
  HeldCalls(const HeldCalls&) = delete;
  HeldCalls& operator=(const HeldCalls&) = delete;

  // Calls so far, held or not.
  uint64_t begun() const;
  // Lets those that wait and all later ones go; each moves at most so many bytes.
  void release(size_t most_bytes = ~size_t{0});
};

// What is done once, right before this program's next flock(), by `action`.
void before_next_flock(std::function<void()> action);

}  // namespace strata::io

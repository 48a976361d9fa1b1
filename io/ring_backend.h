// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/ring.h"

namespace strata::io {

// One I/O as the kernel sees it; `slot` comes back with its completion.
struct Piece {
  uint32_t slot = 0;
  Direction direction = Direction::kRead;
  uint32_t file = 0;
  uint64_t offset = 0;
  void* data = nullptr;
  uint32_t bytes = 0;
};

struct Completion {
  uint32_t slot = 0;
  int64_t result = 0;  // bytes moved, or -errno
};

// Executes pieces: the interface between the rules of Ring and the kernel. At most `depth` pieces
// are in a backend at once, one for each slot. Threads: as Ring.
class RingBackend {
 public:
  virtual ~RingBackend() = default;
  virtual const char* name() const = 0;
  virtual double now_s() const = 0;
  virtual void start(const Piece& piece) = 0;  // may only queue it
  virtual void flush() = 0;                    // submits the pieces that start() queued
  virtual size_t reap(std::span<Completion> completions) = 0;
  virtual void wait(double timeout_s) = 0;
  virtual void wake() = 0;
  virtual void cancel(uint32_t slot) = 0;  // best effort; the piece still completes, now or later
};

struct UringResult {
  std::unique_ptr<RingBackend> backend;  // null when the kernel refused
  std::string refusal = {};              // the reason
};
UringResult make_uring_backend(const RingOptions& options);
std::unique_ptr<RingBackend> make_threads_backend(const RingOptions& options);
std::unique_ptr<RingBackend> make_simulated_backend(const RingOptions& options);

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/notices.h"
#include "io/volume.h"

namespace strata::io {

struct MemoryRegion {
  void* data = nullptr;
  uint64_t bytes = 0;
};

// Faults of a simulated drive. Silent kinds report success.
enum class FaultKind : uint8_t {
  kEio,
  kEnospc,
  kShort,  // about half of the bytes move, up to a place within a sector
  kZero,   // success with no bytes
  kEagain,
  kEintr,
  kTorn,         // silent: the second half keeps its old content
  kFlipped,      // silent: one bit is inverted
  kStale,        // silent: a write is lost, a read leaves the memory as it was
  kMisdirected,  // silent: the neighbouring place of the same size is used
  kHang,         // never completes unless cancelled
};

const char* name_of(FaultKind kind);

struct SimulatedFault {
  FaultKind kind = FaultKind::kEio;
  uint64_t index = 0;      // the first I/O hit, counted by start, resubmissions included
  uint64_t count = 1;      // I/Os hit in a row
  int error_number = EIO;  // for kEio; the kernel has other codes for unreadable sectors too
};

// A simulated drive over the real files: seeded latencies, and therefore seeded reordering.
struct SimulatedOptions {
  uint64_t seed = 1;
  double latency_s_min = 50e-6;
  double latency_s_max = 500e-6;
  uint64_t slow_from = ~uint64_t{0};  // from this I/O on, latencies are slow_factor times as long
  double slow_factor = 1;
  int32_t slow_file = -1;    // only this file becomes slow; -1: all files
  bool virtual_time = true;  // wait() advances a clock of the ring's own; else latencies are real
  std::vector<SimulatedFault> faults = {};
  uint64_t* started = nullptr;         // counts the I/Os, resubmissions included
  uint64_t* injected = nullptr;        // counts the faults that happened
  uint32_t* most_of_a_file = nullptr;  // the most I/Os of one file in flight at once
};

// One raw request; owned by the caller and at a fixed address until poll() returns it.
struct RingRequest {
  enum class Outcome : uint8_t {
    kDone,        // all bytes moved
    kErrno,       // the kernel returned `error_number`
    kNoProgress,  // twice no bytes moved: the file ends here, or the device is broken
    kDeadline,    // gave up after RingOptions::deadline_s
  };
  Direction direction = Direction::kRead;
  uint32_t file = 0;  // index in RingOptions::files
  uint64_t offset = 0;
  void* data = nullptr;
  uint64_t bytes = 0;

  // Set by the ring.
  Outcome outcome = Outcome::kDone;
  int error_number = 0;
  bool memory_in_use = false;  // with kDeadline: the kernel still uses the memory; do not free it
  uint64_t bytes_moved = 0;
  double started_s = 0;
  double finished_s = 0;
  uint32_t slot = 0;
};

struct RingFile {
  int fd = -1;
  std::string name = {};
};

struct RingOptions {
  Backend backend = Backend::kAuto;
  uint32_t depth = 16;
  std::vector<RingFile> files = {};
  // Registered with the kernel if it allows that; other memory works too.
  std::vector<MemoryRegion> regions = {};
  uint32_t alignment = 4096;  // a partial transfer resumes at a multiple of this
  double warn_after_s = 30;   // a request older than this is reported once
  double deadline_s = 600;    // a request older than this is cancelled and fails
  SimulatedOptions simulated = {};
  Notices* notices = nullptr;  // shared by rings that must not repeat notices; may be null
};

struct Completion;
class RingBackend;

// Moves bytes between files and host memory with up to `depth` requests in flight.
//
// Guarantees: a request completes exactly once; short transfers, EAGAIN and EINTR are resubmitted
// until the whole buffer has moved or an error occurs; nothing is allocated after construction. The
// destructor cancels all requests, then waits until the kernel uses no buffer any more. If that has
// not happened 3 s after the last deadline, the drive hangs for good: the destructor reports a hang
// to its environment (engine/base/environment.h), which may end the process, and waits on, since
// memory that the kernel may still write to must be neither freed nor used again.
// Not guaranteed: order. Two requests on one byte range must be ordered by the caller.
// Threads: not thread-safe; one ring belongs to one lane. Only wake() may be called from any other.
// Failure: construction throws Error; later failures arrive in the request. kAuto takes the thread
// pool when io_uring is refused, and logs the reason once.
class Ring {
 public:
  explicit Ring(const RingOptions& options);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  const char* backend_name() const;
  double now_s() const;  // the ring's clock: virtual in a simulated ring
  uint32_t depth() const { return depth_; }
  uint32_t in_flight() const { return in_flight_; }
  // Whether submit() may be called. Slots of requests that the kernel never gave back are lost.
  bool has_room() const { return !free_slots_.empty(); }
  uint32_t lost() const { return lost_; }

  // Takes a request; it reaches the kernel with the next flush(), poll() or wait(). Needs
  // has_room().
  void submit(RingRequest* request);
  void flush();
  // Fills `finished` from the front with completed requests and returns their number. Never blocks.
  size_t poll(std::span<RingRequest*> finished);
  // Returns when something may have completed, after wake(), or after the timeout.
  void wait(double timeout_s);
  void wake();

 private:
  struct Slot {
    RingRequest* request = nullptr;  // null: free, or given up and still in the kernel
    RingRequest asked = {};          // a copy; the caller's may be destroyed before the ring
    uint32_t stalls = 0;             // completions in a row that moved nothing
    uint32_t refusals = 0;           // EAGAIN or EINTR in a row
    double retry_at_s = 0;           // when it is parked
    double cancelled_at_s = -1;
    bool warned = false;
    bool parked = false;
    bool in_backend = false;
  };
  void start(uint32_t slot);
  void settle(uint32_t slot, int64_t result);
  void advance(uint32_t slot, uint64_t moved);
  void finish(uint32_t slot, RingRequest::Outcome outcome, int error_number);
  void park(uint32_t slot);
  void retry_parked();
  void check_deadlines();
  size_t held() const;
  double closing_limit_s() const;
  Error hang() const;  // the error for a request that the kernel does not give back

  // Constant after construction.
  uint32_t depth_;
  uint32_t alignment_;
  double warn_after_s_;
  double deadline_s_;
  std::vector<RingFile> files_;
  std::unique_ptr<RingBackend> backend_;

  // Owned by the lane.
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<RingRequest*> finished_;   // completed, not yet returned by poll(); oldest first
  std::vector<Completion> completions_;  // scratch of poll()
  uint32_t in_flight_ = 0;
  uint32_t parked_ = 0;
  uint32_t lost_ = 0;
  double next_deadline_check_s_ = 0;
};

}  // namespace strata::io

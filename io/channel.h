// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/latency.h"
#include "io/rate_limiter.h"
#include "io/ring.h"
#include "io/speed_watch.h"
#include "io/volume.h"

namespace strata::io {

struct ChannelOptions {
  Backend backend = Backend::kAuto;
  uint32_t depth = 16;               // requests in flight
  uint32_t file_depth = 0;           // the most of them to one file of the volume; 0: no bound
  uint64_t request_bytes = 1 << 20;  // the largest request; a multiple of the volume's block_bytes
  uint32_t max_transfers = 1024;     // the most that are submitted and not done
  std::vector<MemoryRegion> regions = {};  // arenas to register with the kernel
  RateLimiter* limiter = nullptr;          // shared between channels
  double warn_after_s = 30;
  double deadline_s = 600;
  bool verify = true;  // only a benchmark of the raw path turns checksums off
  SimulatedOptions simulated = {};
};

// Bytes that a channel moved to and from one file of the volume.
struct FileTraffic {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
};

struct ChannelStats {
  LatencyHistogram read_latency;  // of requests, from submission to the kernel until reaped
  LatencyHistogram write_latency;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t requests = 0;
  std::vector<FileTraffic> files;  // by index of the volume's files
  double busy_s = 0;               // time with at least one request in flight
};

// One lane's queue on a volume: splits transfers into requests, keeps up to `depth` of them in the
// ring, seals what is written and verifies what is read.
//
// Guarantees: a transfer becomes done exactly once, with its bytes right or with an Error that
// names file, offset and advice. Requests start in the order of submit(), so one whose file has
// `file_depth` in flight delays those behind it. A read that failed or has a wrong checksum is
// tried twice more before it is an error. Blocks that a failed write did not write count as never
// written. Nothing is allocated unless a transfer fails.
// Not guaranteed: order of completion.
// Threads: belongs to one lane, except wake(). The volume and the limiter must outlive it.
// Failure: construction throws Error; later errors arrive in the transfers. The destructor cancels
// requests in flight and waits until the kernel no longer uses their memory; their transfers never
// become done. When a drive hangs for good, it reports a hang: see Ring.
class Channel {
 public:
  Channel(Volume& volume, const ChannelOptions& options);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const char* backend_name() const;
  double now_s() const;

  // Never blocks. Needs in_flight() < max_transfers.
  void submit(Transfer* transfer);
  // Collects and verifies completions and starts further requests. Returns how many transfers
  // became done.
  size_t poll();
  // Returns on a completion, on wake(), when the limiter lets the next request start, or after the
  // timeout; may also return early.
  void wait(double timeout_s);
  void wake();

  size_t in_flight() const { return in_flight_; }  // transfers submitted and not done
  const ChannelStats& stats() const { return stats_; }

  // Requests that the kernel never gave back. While there are any, memory of failed transfers may
  // still change: destroy the channel before that memory.
  uint32_t lost_requests() const { return ring_->lost(); }

 private:
  struct Pending;
  struct Request;

  void issue();
  void collect();
  bool start_next();
  bool has_room(uint32_t file) const;
  void forget_from(const Pending& pending, uint64_t offset);
  void seal_until(Pending* pending, uint64_t end);
  bool seal_ahead();
  bool limiter_allows(Direction direction, uint64_t bytes);
  void start(Request* request);
  void complete(Request* request);
  bool accept_read(Request* request);
  void release(Request* request);
  void watch_speed(const RingRequest& ring, bool full);
  bool reread(Request* request);
  void settle(Pending* pending);
  void fail(Pending* pending, Error error);
  void fail_queued();
  size_t retire();

  // Constant after construction.
  Volume& volume_;
  RateLimiter* limiter_;
  const uint32_t share_;  // requests in flight to a file that is kept busy
  const uint64_t request_bytes_;
  const uint32_t max_transfers_;
  const uint64_t ahead_bytes_;  // of waiting writes that are hashed ahead
  const uint32_t file_depth_;
  const bool verify_;
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<Pending[]> pendings_;
  std::unique_ptr<Request[]> requests_;

  // Owned by the lane. Capacities are reserved at construction.
  std::vector<Pending*> free_pendings_;
  std::vector<Pending*> queue_;  // circular, [head_, tail_): not yet wholly split into requests
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  std::vector<Pending*> settled_;  // all requests back; become done in poll()
  std::vector<Request*> free_requests_;
  std::vector<Request*> retries_;  // to be read again
  std::vector<RingRequest*> reaped_;
  std::vector<Request*> completed_;  // back from the ring, not yet processed; oldest first
  size_t in_flight_ = 0;
  double booked_start_s_ = -1;  // when the limiter lets the next request start; -1 = not booked
  bool busy_ = false;
  double busy_since_s_ = 0;
  struct FileLoad {
    uint32_t in_flight = 0;  // started and not yet processed
    uint32_t in_ring = 0;    // of those, still with the drive
    SpeedWatch speed;
  };
  std::vector<FileLoad> loads_;  // by file
  ChannelStats stats_;
};

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/node_ranks.h"
#include "engine/base/payload.h"

namespace strata::comm {

// One chunk of a segment: one part of `part_bytes` bytes for each rank, in rank order, from `base`
// on.
struct GatherRange {
  void* base = nullptr;
  int64_t part_bytes = 0;
};

// `whole` [size * part_numel] is this rank's contribution to all parts, in rank order; `out`
// [part_numel] receives the sum of this rank's part. `out` is whole + rank * part_numel, or lies
// outside of `whole`. Other parts of `whole` may be changed unless the payload is kF32.
struct ReduceRange {
  float* whole = nullptr;
  int64_t part_numel = 0;
  float* out = nullptr;
};

// Part p of `send` goes to rank p and becomes part (sender's rank) of its `receive`. The two
// buffers do not overlap.
struct AllToAll {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t part_bytes = 0;
};

struct Message {
  void* data = nullptr;  // only read by send
  int64_t bytes = 0;
  int peer = 0;
  int64_t tag = 0;
};

struct CallHeader;

struct GroupOptions {
  double deadline_s = 600;  // the longest wait for another rank
  // Ranks of the group that are on one machine and follow each other; of processes, the launch
  // says it (ExchangeOptions). 0: all.
  int near = 0;
};

// Ranks that exchange bytes.
//
// Guarantees: a sum adds the fp32 (or f64) contributions of a machine's ranks one by one in rank
// order, and then those sums in the order of machines. So it has the same bits on every rank, in
// every call pattern (reduce, reduce + gather, all_reduce_sum), in every run, and whatever the
// ranks exchange by. Where machines have different numbers of a group's ranks, each rank counts as
// on a machine of its own. Each contribution, and each machine's sum where there are several, is
// first rounded as the payload says: to the nearest bf16, or to 8 bits, so that half or a quarter
// of the bytes go to the ranks that add; the sum is fp32 as before. When a call returns, no rank
// uses its buffers any more.
// Use: all ranks make the same collective calls with the same sizes in the same order, one thread
// of a rank at a time. send may wait for its recv, so when two ranks exchange messages one of them
// must receive first.
// Threads: abort may be called by any thread at any time.
// Failure: Error{kPeer} when another rank aborted or made another call, Error{kDeadline} naming the
// ranks that did not arrive in time. After either, every call on every rank throws.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Since the group was made. Between calls; for groups of threads, what processes would send.
  const SentBytes& sent() const { return sent_; }

  // Works in place: each range holds this rank's part before the call and all parts after it.
  virtual void gather_chunks(std::span<const GatherRange> ranges) = 0;
  void gather(void* whole, int64_t part_bytes) {
    const GatherRange range = {whole, part_bytes};
    gather_chunks({&range, 1});
  }

  // Parts and counts are multiples of block_of(payload).
  virtual void reduce_chunks(std::span<const ReduceRange> ranges, Payload payload) = 0;
  void reduce(const ReduceRange& range) { reduce_chunks({&range, 1}, Payload::kF32); }

  virtual void all_reduce_sum(float* values, int64_t count, Payload payload) = 0;
  void all_reduce_sum(float* values, int64_t count) {
    all_reduce_sum(values, count, Payload::kF32);
  }
  virtual void all_reduce_sum(double* values, int64_t count) = 0;

  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
  virtual void all_to_all(const AllToAll& exchange) = 0;
  virtual void send(const Message& message) = 0;
  virtual void recv(const Message& message) = 0;
  // Returns when all ranks have called it, or throws on all of them where they say different
  // things (call_header.h).
  virtual void meet(const CallHeader& header) = 0;
  void barrier();

  // Reports that this rank cannot go on. Calls of all other ranks return with an Error that names
  // this rank and `reason`.
  virtual void abort(const std::string& reason) = 0;

  // Throws where another rank has done that. `call` is for the message. Threads: any.
  virtual void throw_if_aborted(const char* call) = 0;

 protected:
  Group(int rank, int size) : rank_(rank), size_(size) {}

  void check_peer(const Message& message) const;
  // Aborts the group for this reason and throws it (kPeer).
  [[noreturn]] void fail(const std::string& text);
  // The same: a message of so many bytes and this tag came, and `due` is another.
  [[noreturn]] void refuse(const Message& due, int64_t bytes, int64_t tag);

  SentBytes sent_;

 private:
  // Constant after construction.
  int rank_;
  int size_;
};

}  // namespace strata::comm

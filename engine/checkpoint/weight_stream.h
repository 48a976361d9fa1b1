// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/checkpoint/checkpoint_reader.h"

namespace strata::checkpoint {

// Streams the trained weights of a checkpoint part by part, segments in order. While the caller
// uses one part, a thread reads the next ones, so that reading and writing overlap.
//
// Threads: one at a time; only the stream may use `checkpoint` while it exists. Failure: next()
// throws what CheckpointReader throws, at the part that could not be read. Memory: kParts parts of
// kPartElements elements, 2 to 6 bytes each by the recipe and `wants_lo`. The constructor's
// arguments must outlive the stream.
class WeightStream {
 public:
  static constexpr int64_t kPartElements = int64_t{2} << 20;  // a few blocks of a checkpoint
  static constexpr size_t kParts = 3;

  // `wants_lo`: whether the caller needs a segment's masters, not only its 16-bit weights.
  WeightStream(CheckpointReader& checkpoint, const model::ModelSpec& spec,
               const std::function<bool(const model::Segment&)>& wants_lo);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // Returns the next part; null after the last one. `lo` is null when it is not wanted, and there
  // are no moments. Invalidates the part returned before.
  const exec::ChunkState* next();

 private:
  struct Part {
    exec::ChunkState state;
    std::vector<std::byte> hi;
    std::vector<std::byte> lo;
  };

  void run();
  Part* room();  // null when the stream is destroyed
  void read_segment(size_t segment);
  void read(Part& part, size_t segment, int64_t first, int64_t count);

  // Constant after construction
  CheckpointReader& checkpoint_;
  const model::ModelSpec& spec_;
  std::vector<bool> wants_lo_;  // by segment

  std::array<Part, kParts> parts_;  // each belongs to the thread or, after reading, to the caller
  std::mutex mu_;
  std::condition_variable changed_;
  size_t read_ = 0;             // Guarded by mu_: number of parts read
  size_t given_ = 0;            // Guarded by mu_: number of parts given to the caller
  bool done_ = false;           // Guarded by mu_: no part follows
  bool stop_ = false;           // Guarded by mu_
  std::exception_ptr failure_;  // Guarded by mu_
  std::jthread thread_;         // last: it uses the others
};

}  // namespace strata::checkpoint

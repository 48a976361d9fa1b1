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

// The trained weights of a checkpoint, part after part, segments in order. While the caller has
// one part, a thread reads the next ones: a drive that is read and written at once is not idle.
//
// Threads: one at a time; `checkpoint` is the stream's until that goes. Failure: next() throws what
// CheckpointReader throws, at the part that could not be read. Memory: kParts of kPartElements, 2
// bytes each, or 4 with low halves or in fp32. What it is given must outlive it.
class WeightStream {
 public:
  static constexpr int64_t kPartElements = int64_t{2} << 20;  // a few blocks of a checkpoint
  static constexpr size_t kParts = 3;

  // `wants_lo`: whether a segment's masters are wanted, and not only its 16-bit weights.
  WeightStream(CheckpointReader& checkpoint, const model::ModelSpec& spec,
               const std::function<bool(const model::Segment&)>& wants_lo);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // Null after the last one. `lo` is null where it is not wanted, and there are no moments. What
  // was returned before is not to be used any more.
  const exec::ChunkState* next();

 private:
  struct Part {
    exec::ChunkState state;
    std::vector<float> master;
    std::vector<uint16_t> hi;
    std::vector<uint16_t> lo;
  };

  void run();
  Part* room();  // null when the stream goes
  void read_segment(size_t segment);
  void read(Part& part, size_t segment, int64_t first, int64_t count);

  // Constant after construction
  CheckpointReader& checkpoint_;
  const model::ModelSpec& spec_;
  std::vector<bool> wants_lo_;  // by segment

  std::array<Part, kParts> parts_;  // each belongs to the thread or, once read, to the caller
  std::mutex mu_;
  std::condition_variable changed_;
  size_t read_ = 0;             // Guarded by mu_: parts so far
  size_t given_ = 0;            // Guarded by mu_: of these, to the caller
  bool done_ = false;           // Guarded by mu_: no part will follow
  bool stop_ = false;           // Guarded by mu_
  std::exception_ptr failure_;  // Guarded by mu_
  std::jthread thread_;         // last: it uses the others
};

}  // namespace strata::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/data/token_batch.h"

namespace strata::data {

// Batches whose tokens are made by threads, and come back in the order in which they were pushed.
//
// Memory: `limits.bytes()` for each batch, and the tokenizers. Threads: one owner calls all
// functions; the queue has threads of its own, which it ends and joins when it is destroyed, after
// the batch that each is at. Failure: where the system refuses some threads there are fewer,
// perhaps none (thread_count()); what fails in a thread is thrown by TokenBatch::hand_over.
class BatchQueue {
 public:
  BatchQueue(std::vector<RecordTokenizer> tokenizers, size_t batches, const BatchLimits& limits);
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  size_t thread_count() const { return threads_.size(); }
  bool is_empty() const { return popped_ == pushed_; }
  bool is_full() const { return pushed_ - popped_ == slots_.size(); }
  // The batch to fill; the queue must not be full.
  TokenBatch& next() { return slots_[pushed_ % slots_.size()]->batch; }
  void push();
  // The oldest batch, with its tokens; the queue must not be empty.
  TokenBatch& oldest();
  void pop() { ++popped_; }

 private:
  struct Slot {
    explicit Slot(const BatchLimits& limits) : batch(limits) {}
    TokenBatch batch;      // the owner's before push() and after oldest(), else a thread's
    bool is_made = false;  // Guarded by mu_
  };

  void work(RecordTokenizer& tokenizer);

  // Constant after construction.
  std::vector<RecordTokenizer> tokenizers_;  // one for each thread
  std::vector<std::unique_ptr<Slot>> slots_;

  size_t popped_ = 0;  // of the owner
  std::mutex mu_;
  std::condition_variable pushed_one_;
  std::condition_variable made_one_;
  size_t pushed_ = 0;  // Guarded by mu_; only the owner changes it, and reads it without the lock
  size_t begun_ = 0;   // Guarded by mu_
  bool is_ending_ = false;             // Guarded by mu_
  std::vector<std::jthread> threads_;  // last: they use the others
};

}  // namespace strata::data

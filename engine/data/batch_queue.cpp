// SPDX-License-Identifier: Apache-2.0
#include "engine/data/batch_queue.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace strata::data {

BatchQueue::BatchQueue(std::vector<RecordTokenizer> tokenizers, size_t batches,
                       const BatchLimits& limits)
    : tokenizers_(std::move(tokenizers)) {
  STRATA_CHECK(batches > 0);
  for (size_t k = 0; k < batches; ++k) slots_.push_back(std::make_unique<Slot>(limits));
  threads_.reserve(tokenizers_.size());
  try {
    for (RecordTokenizer& tokenizer : tokenizers_) {
      threads_.push_back(start_thread([this, &tokenizer] { work(tokenizer); }));
    }
  } catch (const Error&) {
    // The threads that are there do the work.
  }
}

BatchQueue::~BatchQueue() {
  const std::lock_guard lock(mu_);
  is_ending_ = true;
  pushed_one_.notify_all();
}

void BatchQueue::push() {
  STRATA_CHECK(!is_full());
  {
    const std::lock_guard lock(mu_);
    slots_[pushed_ % slots_.size()]->is_made = false;
    ++pushed_;
  }
  pushed_one_.notify_one();
}

TokenBatch& BatchQueue::oldest() {
  STRATA_CHECK(!is_empty());
  Slot& slot = *slots_[popped_ % slots_.size()];
  std::unique_lock lock(mu_);
  made_one_.wait(lock, [&] { return slot.is_made; });
  return slot.batch;
}

void BatchQueue::work(RecordTokenizer& tokenizer) {
  std::unique_lock lock(mu_);
  while (true) {
    pushed_one_.wait(lock, [&] { return is_ending_ || begun_ < pushed_; });
    if (is_ending_) return;
    Slot& slot = *slots_[begun_++ % slots_.size()];
    lock.unlock();
    slot.batch.make(tokenizer);
    lock.lock();
    slot.is_made = true;
    made_one_.notify_one();
  }
}

}  // namespace strata::data

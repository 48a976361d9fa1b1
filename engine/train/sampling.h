// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::train {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1.0;  // only the fewest most likely tokens that together have this probability
  uint64_t seed = 0;
};

// Draws the next token from logits: applies temperature, then top-k, then top-p, then draws one
// uniform number.
//
// Guarantees: the token depends only on logits, options, sequence and position, not on earlier
// draws. Of equal logits, the smaller id counts as more likely. Threads: one. Memory:
// 16 bytes a vocabulary entry. Failure: the constructor throws Error for options out of range;
// next() throws Error (kNumeric) when no logit is a number, or one is NaN.
class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options);
  int32_t next(const float* logits, int64_t count, int64_t sequence, int64_t position);

 private:
  struct Candidate {
    double weight;  // logit, then probability up to a factor
    int32_t id;
  };
  size_t keep_most_likely(const float* logits, int64_t count);

  SamplingOptions options_;
  std::vector<Candidate> candidates_;
};

}  // namespace strata::train

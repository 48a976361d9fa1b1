// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/data_tokens.h"
#include "engine/data/packing.h"

namespace strata::data {

// Samples of up to T input tokens each, cut from token sequences. A sample that begins at token b
// has the inputs tokens[b .. b+n) and the same tokens one position later as targets, or -1 where
// the loss ignores them; n <= T, and the rest of the row is padded with id 0 and target -1.
//
// Samples of a stream begin T tokens apart, so that only the last of a sequence is shorter. Samples
// of records begin where their record does, and end with it or after T tokens: nothing of one
// record is in another's sample. Padding is behind all tokens of its row, where causal attention
// does not look, so that a sample's loss and gradients are those of the record alone.
//
// Samples of a packing hold whole records, cut after T tokens, one behind another. Each attends to
// itself alone and has positions of its own (BatchShape::documents); padding does too.
//
// In a mixture, an epoch is as many draws as there are samples, and each part has its own share of
// them. A part whose share is larger than its number of samples repeats within an epoch; each of
// its samples is used once before one is used again, over all epochs.
//
// A view: sequences and starts must outlive it. Threads: any number.
class TokenSource {
 public:
  struct Part {
    const TokenSequence* tokens = nullptr;
    // Where records begin in `tokens`, in order; null: a stream.
    const Numbers* starts = nullptr;
    int64_t first = 0;  // the first sample of `tokens` that is used
    int64_t count = 0;
    const Packing* packing = nullptr;  // of the records into samples; null: each is a sample
    double weight = 0;                 // in a mixture, where all parts have one; 0: not a mixture
  };

  TokenSource() = default;
  TokenSource(const TokenSequence& tokens, int64_t length, int64_t first, int64_t count)
      : TokenSource(length, {{.tokens = &tokens, .first = first, .count = count}}) {}
  TokenSource(int64_t length, std::vector<Part> parts);

  // How many samples a sequence has, which begins records at `starts`, if they are not null. Tokens
  // behind the last whole sample of a stream count only with `keeps_tail`.
  static int64_t samples_in(const TokenSequence& tokens, const Numbers* starts, int64_t length,
                            bool keeps_tail);

  int64_t sample_count() const { return sample_count_; }
  int64_t length() const { return length_; }
  const std::vector<Part>& parts() const { return parts_; }
  // `starts`, if not null, receives where the record of each token starts in the sample.
  void sample(int64_t index, int32_t* inputs, int32_t* targets, int32_t* starts = nullptr) const;
  // The number of targets in the sample that are not -1.
  int64_t target_count(int64_t index) const;
  // Whether some sample may have fewer than T targets.
  bool has_masks() const { return has_masks_; }

  // The sample of a row number, when epochs of all samples follow one another in random orders.
  int64_t drawn(uint64_t seed, int64_t row) const;
  // How many draws of an epoch a part has.
  int64_t draws_of(size_t part) const { return draws_[part]; }

 private:
  struct Span {
    const TokenSequence* tokens;
    int64_t begin;
    int64_t length;  // of the inputs
  };
  // Calls `visit(span)` for what follows one another in a sample.
  template <typename Visit>
  void each_span(int64_t index, const Visit& visit) const;
  Span span_of(const Part& part, int64_t index) const;

  int64_t length_ = 0;
  int64_t sample_count_ = 0;
  bool has_masks_ = false;
  bool is_mixture_ = false;
  std::vector<Part> parts_;
  std::vector<int64_t> draws_;
};

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#include "engine/train/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace strata::train {
namespace {

constexpr uint64_t kStream = uint64_t{0x67656e65} << 32;  // apart from other uses of the seed

int32_t most_likely(const float* logits, int64_t count) {
  int64_t best = -1;
  for (int64_t id = 0; id < count; ++id) {
    if (std::isnan(logits[id])) {
      throw Error(ErrorCode::kNumeric,
                  fmt::format("sample token: logit of id {}: not a number (the weights are broken: "
                              "use another checkpoint)",
                              id));
    }
    if (best < 0 || logits[id] > logits[best]) best = id;
  }
  if (best < 0 || !std::isfinite(logits[best])) {
    throw Error(ErrorCode::kNumeric,
                fmt::format("sample token: {} logits: the largest is not finite (the weights are "
                            "broken: use another checkpoint)",
                            count));
  }
  return static_cast<int32_t>(best);
}

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options) {
  const bool is_valid = std::isfinite(options.temperature) && options.temperature >= 0 &&
                        options.top_k >= 0 && options.top_p > 0 && options.top_p <= 1;
  if (is_valid) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("set up sampling: temperature {}, top-k {}, top-p {}: out of range (give 0 or "
                  "more, 0 or more, above 0 to 1)",
                  options.temperature, options.top_k, options.top_p));
}

// Moves the tokens that are kept to the front, the most likely first, and returns their number.
size_t TokenSampler::keep_most_likely(const float* logits, int64_t count) {
  candidates_.resize(static_cast<size_t>(count));
  for (int64_t id = 0; id < count; ++id) {
    candidates_[static_cast<size_t>(id)] = {logits[id], static_cast<int32_t>(id)};
  }
  size_t kept = candidates_.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  const auto is_likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates_.end(), is_likelier);
  const double top = candidates_[0].weight;
  double total = 0;
  for (size_t k = 0; k < kept; ++k) {
    candidates_[k].weight = std::exp((candidates_[k].weight - top) / options_.temperature);
    total += candidates_[k].weight;
  }
  double sum = 0;
  for (size_t k = 0; k < kept; ++k) {
    sum += candidates_[k].weight;
    if (sum >= options_.top_p * total) return k + 1;
  }
  return kept;
}

int32_t TokenSampler::next(const float* logits, int64_t count, int64_t sequence, int64_t position) {
  STRATA_CHECK(count > 0);
  const int32_t best = most_likely(logits, count);
  if (options_.temperature == 0) return best;
  const size_t kept = keep_most_likely(logits, count);
  double total = 0;
  for (size_t k = 0; k < kept; ++k) total += candidates_[k].weight;
  const double drawn = total * Philox(options_.seed)
                                   .uniform(static_cast<uint64_t>(position),
                                            kStream ^ static_cast<uint64_t>(sequence));
  double sum = 0;
  for (size_t k = 0; k < kept; ++k) {
    sum += candidates_[k].weight;
    if (drawn < sum) return candidates_[k].id;
  }
  return candidates_[kept - 1].id;
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#include "engine/data/token_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/data/sampler.h"

namespace strata::data {
namespace {

// The seed of the order within a part of a mixture.
uint64_t seed_of_part(uint64_t seed, size_t part) {
  return seed ^ (0x9E3779B97F4A7C15u * (part + 1));
}

// Shares `total` draws by weight, so that they add up: those with the largest fractions left are
// rounded up. Each part gets at least one draw when there are enough.
std::vector<int64_t> shares_of(const std::vector<TokenSource::Part>& parts, int64_t total) {
  double sum = 0;
  for (const TokenSource::Part& part : parts) sum += part.weight;
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> rests;
  for (size_t k = 0; k < parts.size(); ++k) {
    const double wanted = static_cast<double>(total) * (parts[k].weight / sum);
    shares.push_back(static_cast<int64_t>(std::floor(wanted)));
    rests.emplace_back(static_cast<double>(shares.back()) - wanted, k);
  }
  std::sort(rests.begin(), rests.end());
  int64_t left = total - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (size_t k = 0; left > 0; k = (k + 1) % rests.size(), --left) ++shares[rests[k].second];
  for (int64_t& share : shares) {
    const auto most = std::max_element(shares.begin(), shares.end());
    if (share > 0 || *most < 2) continue;
    ++share;
    --*most;
  }
  return shares;
}

}  // namespace

TokenSource::TokenSource(int64_t length, std::vector<Part> parts)
    : length_(length), parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    sample_count_ += part.count;
    has_masks_ = has_masks_ || part.starts != nullptr || part.tokens->has_masks();
    is_mixture_ = is_mixture_ || part.weight > 0;
  }
  for (const Part& part : parts_) draws_.push_back(part.count);
  if (is_mixture_) draws_ = shares_of(parts_, sample_count_);
}

int64_t TokenSource::samples_in(const TokenSequence& tokens, const Numbers* starts, int64_t length,
                                bool keeps_tail) {
  if (starts != nullptr) return starts->size();
  if (tokens.count() == 0) return 0;
  const int64_t targets = tokens.count() - 1;
  return keeps_tail ? ceil_div(targets, length) : targets / length;
}

// The sample of a stream, or a record.
TokenSource::Span TokenSource::span_of(const Part& part, int64_t index) const {
  const int64_t all = part.tokens->count();
  if (part.starts == nullptr) {
    return {part.tokens, index * length_, std::min(length_, all - 1 - index * length_)};
  }
  const bool is_last = index + 1 == part.starts->size();
  const auto ends = part.starts->read(index, is_last ? 1 : 2);
  const int64_t end = is_last ? all : ends.back();
  return {part.tokens, ends.front(), std::min(length_, end - ends.front() - 1)};
}

template <typename Visit>
void TokenSource::each_span(int64_t index, const Visit& visit) const {
  STRATA_CHECK(index >= 0 && index < sample_count_);
  size_t at = 0;
  while (index >= parts_[at].count) index -= parts_[at++].count;
  const Part& part = parts_[at];
  index += part.first;
  if (part.packing == nullptr) return visit(span_of(part, index));
  const auto ends = part.packing->row_starts.read(index, 2);
  for (const int64_t record : part.packing->order.read(ends[0], ends[1] - ends[0])) {
    visit(span_of(part, record));
  }
}

void TokenSource::sample(int64_t index, int32_t* inputs, int32_t* targets, int32_t* starts) const {
  int64_t at = 0;
  each_span(index, [&](const Span& span) {
    STRATA_CHECK(at + span.length <= length_);
    span.tokens->read(span.begin, span.length, inputs + at);
    std::copy(inputs + at + 1, inputs + at + span.length, targets + at);
    span.tokens->read(span.begin + span.length, 1, targets + at + span.length - 1);
    span.tokens->mask(span.begin + 1, span.length, targets + at);
    if (starts != nullptr) std::fill_n(starts + at, span.length, static_cast<int32_t>(at));
    at += span.length;
  });
  std::fill(inputs + at, inputs + length_, 0);
  std::fill(targets + at, targets + length_, -1);
  if (starts != nullptr) std::fill(starts + at, starts + length_, static_cast<int32_t>(at));
}

int64_t TokenSource::target_count(int64_t index) const {
  int64_t count = 0;
  each_span(index, [&](const Span& span) {
    count += span.tokens->target_count(span.begin + 1, span.length);
  });
  return count;
}

int64_t TokenSource::drawn(uint64_t seed, int64_t row) const {
  const int64_t epoch = row / sample_count_;
  int64_t draw = Shuffle(seed, static_cast<uint64_t>(epoch), sample_count_).at(row % sample_count_);
  if (!is_mixture_) return draw;
  int64_t base = 0;
  size_t at = 0;
  while (draw >= draws_[at]) {
    draw -= draws_[at];
    base += parts_[at++].count;
  }
  const int64_t count = parts_[at].count;
  const int64_t turn = epoch * draws_[at] + draw;
  const Shuffle order(seed_of_part(seed, at), static_cast<uint64_t>(turn / count), count);
  return base + order.at(turn % count);
}

}  // namespace strata::data

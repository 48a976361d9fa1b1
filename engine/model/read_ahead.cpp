// SPDX-License-Identifier: Apache-2.0
#include "engine/model/read_ahead.h"

#include <algorithm>

#include "engine/base/units.h"

namespace strata::model {
namespace {

constexpr int64_t kWindowBytes = 32 * kMiB;
constexpr int64_t kAdviceBytes = kMiB;

}  // namespace

ReadAhead::ReadAhead(const ModelDirectory& directory, const ModelSpec& spec)
    : directory_(directory) {
  int64_t bytes = 0;
  for (const Segment& segment : spec.segments) {
    std::vector<const Parameter*> ordered;
    for (const Parameter& parameter : segment.parameters) ordered.push_back(&parameter);
    std::sort(ordered.begin(), ordered.end(),
              [](const Parameter* a, const Parameter* b) { return a->offset < b->offset; });
    for (const Parameter* parameter : ordered) {
      bytes += directory.stored_bytes(*parameter);
      items_.push_back({parameter, bytes});
    }
  }
}

int64_t ReadAhead::bytes_of_item(size_t index) const {
  return items_[index].end_bytes - (index == 0 ? 0 : items_[index - 1].end_bytes);
}

// The range, and as much again behind it.
void ReadAhead::reach_within(const Parameter& parameter, int64_t first, int64_t count) {
  const int64_t stored = directory_.stored_bytes(parameter);
  const auto byte_of = [&](int64_t element) {
    const double part = static_cast<double>(element) / static_cast<double>(parameter.numel);
    return std::min(stored, static_cast<int64_t>(static_cast<double>(stored) * part));
  };
  const int64_t begin = byte_of(first);
  directory_.will_read(parameter, begin, byte_of(first + 2 * count) - begin);
}

void ReadAhead::reach(const Parameter& parameter, int64_t first, int64_t count) {
  size_t found = at_;
  while (found < items_.size() && items_[found].parameter != &parameter) ++found;
  if (found == items_.size()) return reach_within(parameter, first, count);
  at_ = found;
  reads_trained_ = reads_trained_ || !parameter.frozen;
  const int64_t begin = items_[at_].end_bytes - bytes_of_item(at_);
  const double part = static_cast<double>(first) / static_cast<double>(parameter.numel);
  const auto read = begin + static_cast<int64_t>(static_cast<double>(bytes_of_item(at_)) * part);
  const int64_t wanted = read + kWindowBytes;
  if (advised_item_ < at_) {
    advised_item_ = at_;
    advised_bytes_ = 0;
  }
  while (advised_item_ < items_.size()) {
    const int64_t item_bytes = bytes_of_item(advised_item_);
    const int64_t item_begin = items_[advised_item_].end_bytes - item_bytes;
    if (item_begin + advised_bytes_ >= wanted) return;
    const int64_t now = std::min(kAdviceBytes, item_bytes - advised_bytes_);
    const bool needed = items_[advised_item_].parameter->frozen || reads_trained_;
    if (now > 0 && needed)
      directory_.will_read(*items_[advised_item_].parameter, advised_bytes_, now);
    advised_bytes_ += now;
    if (advised_bytes_ < item_bytes) continue;
    ++advised_item_;
    advised_bytes_ = 0;
  }
}

}  // namespace strata::model

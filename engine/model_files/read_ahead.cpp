// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/read_ahead.h"

#include <algorithm>
#include <cstring>

#include "engine/base/units.h"

namespace strata::model {
namespace {

constexpr int64_t kReadWindowBytes = 32 * kMiB;
constexpr int64_t kAdviceBytes = kMiB;
// When more bytes than this were read ahead in vain, the caller does not load in order.
constexpr int64_t kUnusedBytesMax = 64 * kMiB;

int64_t byte_of(int64_t element, const Parameter& parameter, int64_t stored_bytes) {
  const double part = static_cast<double>(element) / static_cast<double>(parameter.numel);
  return std::min(stored_bytes, static_cast<int64_t>(static_cast<double>(stored_bytes) * part));
}

}  // namespace

ReadAhead::ReadAhead(const ModelDirectory& directory, const ModelSpec& spec,
                     const ReadAheadOptions& options)
    : directory_(directory), options_(options) {
  int64_t bytes = 0;
  for (const Segment& segment : spec.segments) {
    std::vector<const Parameter*> ordered;
    for (const Parameter& parameter : segment.parameters) ordered.push_back(&parameter);
    std::sort(ordered.begin(), ordered.end(),
              [](const Parameter* a, const Parameter* b) { return a->offset < b->offset; });
    for (const Parameter* parameter : ordered) {
      const auto range = directory.stored_range(*parameter);
      bytes += range.bytes;
      items_.push_back({parameter, range, bytes});
    }
  }
}

// Makes the item of a parameter the current one. Returns false when the caller leaves the order.
bool ReadAhead::find(const Parameter& parameter) {
  size_t found = at_;
  while (found < items_.size() && items_[found].parameter != &parameter) ++found;
  if (found == items_.size()) return false;
  const size_t begin = opened_ ? at_ + 1 : at_;
  for (size_t i = begin; i < found; ++i) skips_[items_[i].parameter->frozen] = true;
  skips_[parameter.frozen] = false;
  at_ = found;
  return true;
}

// Advises the kernel to read the range, and as many bytes again after it.
void ReadAhead::advise_within(const Parameter& parameter, int64_t first, int64_t count) const {
  const auto range = directory_.stored_range(parameter);
  const int64_t begin = byte_of(first, parameter, range.bytes);
  const int64_t end = byte_of(first + 2 * count, parameter, range.bytes);
  range.file->will_read(range.offset + begin, end - begin);
}

void ReadAhead::advise_window(int64_t read_bytes) {
  while (next_item_ < items_.size()) {
    const Item& item = items_[next_item_];
    if (item.begin_bytes() + next_bytes_ >= read_bytes + kReadWindowBytes) return;
    const int64_t now = std::min(kAdviceBytes, item.range.bytes - next_bytes_);
    if (now > 0 && !skips_[item.parameter->frozen])
      item.range.file->will_read(item.range.offset + next_bytes_, now);
    next_bytes_ += now;
    if (next_bytes_ < item.range.bytes) continue;
    ++next_item_;
    next_bytes_ = 0;
  }
}

void ReadAhead::open_direct() {
  std::vector<const File*> files;
  for (const Item& item : items_) {
    if (std::find(files.begin(), files.end(), item.range.file) == files.end())
      files.push_back(item.range.file);
  }
  direct_ = DirectReader::open(files, options_.buffer_bytes);
}

void ReadAhead::reach(const Parameter& parameter, int64_t first, int64_t count) {
  if (!find(parameter)) {
    direct_.reset();
    return advise_within(parameter, first, count);
  }
  if (!opened_ && options_.buffer_bytes > 0) open_direct();
  opened_ = true;
  const Item& item = items_[at_];
  const int64_t byte = byte_of(first, parameter, item.range.bytes);
  if (next_item_ < at_ || (direct_ != nullptr && next_item_ == at_ && next_bytes_ < byte)) {
    next_item_ = at_;
    next_bytes_ = direct_ != nullptr ? byte : 0;
  }
  if (direct_ == nullptr) return advise_window(item.begin_bytes() + byte);
  start_more();
  if (parameter.stored.transposed || !direct_->holds(*item.range.file, item.range.offset + byte))
    advise_within(parameter, first, count);
}

// Fills the buffer with the ranges that come next.
void ReadAhead::start_more() {
  while (next_item_ < items_.size()) {
    const Item& item = items_[next_item_];
    const ModelDirectory::StoredRange& range = item.range;
    const bool left_out = skips_[item.parameter->frozen] || item.parameter->stored.transposed;
    const int64_t now = left_out ? 0
                                 : direct_->reach_of(*range.file, range.offset + next_bytes_,
                                                     range.bytes - next_bytes_);
    if (now > 0 && !direct_->start(*range.file, range.offset + next_bytes_, now)) return;
    next_bytes_ += now;
    if (now > 0 && next_bytes_ < range.bytes) continue;
    ++next_item_;
    next_bytes_ = 0;
  }
}

const void* ReadAhead::get(const File& file, int64_t offset, int64_t bytes, void* room) {
  char* to = static_cast<char*>(room);
  const int64_t end = offset + bytes;
  while (direct_ != nullptr && offset < end) {
    direct_->skip_to(file, offset);
    start_more();  // into memory that earlier ranges used, while this range arrives
    const DirectReader::Found found = direct_->get(file, offset);
    if (found.data == nullptr) break;
    const bool last = next_item_ == items_.size() && direct_->ranges() == 1;
    if (to == room && found.bytes >= end - offset && !(last && found.bytes == end - offset))
      return found.data;
    const int64_t now = std::min(found.bytes, end - offset);
    std::memcpy(to, found.data, static_cast<size_t>(now));
    to += now;
    offset += now;
    const bool wrong = direct_->unused_bytes() > kUnusedBytesMax;
    if (wrong || (last && now == found.bytes)) direct_.reset();
  }
  if (offset < end) file.read_at(offset, to, end - offset);
  return room;
}

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/base/units.h"

namespace strata::model {
namespace {

constexpr int64_t kReadWindowBytes = 32 * kMiB;
constexpr int64_t kAdviceBytes = kMiB;

// Where an element is; about, where elements do not have whole bytes or are not in order.
int64_t byte_of(int64_t element, const Parameter& parameter, int64_t stored_bytes) {
  if (stored_bytes % parameter.numel == 0) return stored_bytes / parameter.numel * element;
  const double part = static_cast<double>(element) / static_cast<double>(parameter.numel);
  return std::min(stored_bytes, static_cast<int64_t>(static_cast<double>(stored_bytes) * part));
}

}  // namespace

ReadAhead::ReadAhead(const ModelDirectory& directory, int64_t buffer_bytes)
    : directory_(directory), buffer_bytes_(buffer_bytes) {}

void ReadAhead::open_direct() {
  if (direct_ != nullptr || tried_ || buffer_bytes_ == 0) return;
  std::vector<const File*> files;
  for (const File& file : directory_.files()) files.push_back(&file);
  direct_ = DirectReader::open(files, buffer_bytes_);
  tried_ = direct_ == nullptr;
}

void ReadAhead::expect(std::span<const Part> group) {
  open_direct();
  const int64_t number = first_group_ + std::ssize(advised_);
  advised_.push_back(0);
  for (const auto& [parameter, first, count] : group) {
    const ModelDirectory::StoredRange range = directory_.stored_range(*parameter);
    const int64_t begin = byte_of(first, *parameter, range.bytes);
    const int64_t end = byte_of(first + count, *parameter, range.bytes);
    if (begin == end) continue;
    next_.push_back(
        {range.file, range.offset + begin, end - begin, !parameter->stored.transposed, number});
  }
  start_more();
}

void ReadAhead::finish() {
  if (advised_.empty()) return;
  advised_.pop_front();
  ++first_group_;
  while (!next_.empty() && next_.front().group < first_group_) next_.pop_front();
  if (direct_ != nullptr) direct_->drop_before(first_group_);
}

void ReadAhead::forget() {
  while (!advised_.empty()) finish();
}

void ReadAhead::start_more() {
  if (direct_ != nullptr && direct_->is_broken()) {
    direct_.reset();
    tried_ = true;
  }
  while (!next_.empty()) {
    Range& range = next_.front();
    int64_t now = 0;
    if (direct_ != nullptr && range.in_order) {
      now = direct_->reach_of(*range.file, range.offset, range.bytes);
      if (now > 0 && !direct_->start(*range.file, range.offset, now, range.group)) return;
    }
    if (now == 0) {
      const int64_t all = std::accumulate(advised_.begin(), advised_.end(), int64_t{0});
      if (all >= kReadWindowBytes) return;
      now = std::min(kAdviceBytes, range.bytes);
      range.file->will_read(range.offset, now);
      advised_[static_cast<size_t>(range.group - first_group_)] += now;
    }
    range.offset += now;
    range.bytes -= now;
    if (range.bytes == 0) next_.pop_front();
  }
}

const void* ReadAhead::get(const File& file, int64_t offset, int64_t bytes, void* room) {
  char* to = static_cast<char*>(room);
  const int64_t end = offset + bytes;
  while (direct_ != nullptr && offset < end) {
    direct_->skip_to(file, offset);
    start_more();  // into memory that earlier ranges used, while this range arrives
    if (direct_ == nullptr) break;
    const DirectReader::Found found = direct_->get(file, offset);
    if (found.data == nullptr) break;
    const bool last = next_.empty() && direct_->ranges() == 1;
    if (to == room && found.bytes >= end - offset && !(last && found.bytes == end - offset))
      return found.data;
    const int64_t now = std::min(found.bytes, end - offset);
    std::memcpy(to, found.data, static_cast<size_t>(now));
    to += now;
    offset += now;
    if (last && now == found.bytes) direct_.reset();
  }
  if (offset == end) return room;
  file.read_at(offset, to, end - offset);
  if (!advised_.empty()) {
    advised_.front() = std::max<int64_t>(0, advised_.front() - (end - offset));
  }
  start_more();
  return room;
}

}  // namespace strata::model

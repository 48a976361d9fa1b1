// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/write_behind.h"

#include "engine/base/units.h"

namespace strata::model {
namespace {

constexpr int64_t kWriteWindowBytes = 48 * kMiB;
// A range waits until it is at least this long, so that requests are large.
constexpr int64_t kRangeBytes = 4 * kMiB;

}  // namespace

void WriteBehind::written(const File& file, int64_t offset, int64_t bytes) {
  Range whole{nullptr, 0, 0};
  {
    const std::lock_guard lock(mu_);
    Range* last = ranges_.empty() ? nullptr : &ranges_.back();
    if (last != nullptr && last->file == &file && last->offset + last->bytes == offset &&
        last->bytes < kRangeBytes) {
      last->bytes += bytes;
    } else {
      ranges_.push_back({&file, offset, bytes});
      last = &ranges_.back();
    }
    bytes_ += bytes;
    if (last->bytes >= kRangeBytes) whole = *last;
  }
  if (whole.file != nullptr) whole.file->start_writing(whole.offset, whole.bytes);
  Range oldest{};
  while (take_oldest(kWriteWindowBytes, oldest))
    oldest.file->finish_writing(oldest.offset, oldest.bytes);
}

void WriteBehind::drain() {
  Range oldest{};
  while (take_oldest(0, oldest)) oldest.file->finish_writing(oldest.offset, oldest.bytes);
}

bool WriteBehind::take_oldest(int64_t window, Range& range) {
  const std::lock_guard lock(mu_);
  if (ranges_.empty() || bytes_ <= window) return false;
  range = ranges_.front();
  ranges_.pop_front();
  bytes_ -= range.bytes;
  return true;
}

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/direct_reader.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::model {
namespace {

// Small, because the drive cannot fill the request that is being converted.
constexpr int64_t kRequestBytes = kMiB;
constexpr size_t kRequestsMax = 32;  // there may be many small ranges
constexpr double kReadWaitS = 1.0;

}  // namespace

std::unique_ptr<DirectReader> DirectReader::open(const std::vector<const File*>& files,
                                                 int64_t bytes) {
  std::vector<DirectFile> sources = open_direct(files);
  if (sources.empty()) return nullptr;
  return std::unique_ptr<DirectReader>(new DirectReader(std::move(sources), bytes));
}

DirectReader::DirectReader(std::vector<DirectFile> sources, int64_t bytes)
    : sources_(std::move(sources)), buffer_(bytes), ring_(ring_options(sources_, kRequestsMax)) {}

int64_t DirectReader::reach_of(const File& file, int64_t offset, int64_t bytes) const {
  const size_t source = index_of(sources_, file);
  if (source == sources_.size()) return 0;
  const int64_t request_bytes = std::min(kRequestBytes, buffer_.bytes());
  const int64_t whole_pages_end = page_of(sources_[source].bytes);
  const int64_t end = std::min({offset + bytes, page_of(offset) + request_bytes, whole_pages_end});
  return std::max<int64_t>(0, end - offset);
}

// Finds room in the buffer, a ring of blocks that are dropped in the order in which they were
// added.
int64_t DirectReader::take_room(int64_t bytes) const {
  constexpr int64_t kNone = -1;
  if (blocks_.empty()) return bytes <= buffer_.bytes() ? 0 : kNone;
  const int64_t oldest = blocks_.front().place;
  const int64_t end = blocks_.back().place + blocks_.back().room_bytes;
  if (blocks_.back().place < oldest) return end + bytes <= oldest ? end : kNone;
  if (end + bytes <= buffer_.bytes()) return end;
  return bytes <= oldest ? 0 : kNone;
}

bool DirectReader::start(const File& file, int64_t offset, int64_t bytes, int64_t group) {
  STRATA_CHECK(bytes > 0 && reach_of(file, offset, bytes) == bytes);
  if (broken_ || !ring_.has_room()) return false;
  const int64_t page = page_of(offset);
  const int64_t room_bytes = round_up(offset + bytes, kPageBytes) - page;
  const int64_t place = take_room(room_bytes);
  if (place < 0) return false;
  Block& block = blocks_.emplace_back();
  block.file = &file;
  block.offset = offset;
  block.bytes = bytes;
  block.place = place;
  block.room_bytes = room_bytes;
  block.group = group;
  block.request.direction = io::Direction::kRead;
  block.request.file = static_cast<uint32_t>(index_of(sources_, file));
  block.request.offset = static_cast<uint64_t>(page);
  block.request.data = buffer_.data() + place;
  block.request.bytes = static_cast<uint64_t>(room_bytes);
  ring_.submit(&block.request);
  ring_.flush();
  return true;
}

void DirectReader::wait_for(const Block& block) {
  while (!block.done) {
    io::RingRequest* finished[kRequestsMax];
    const size_t count = ring_.poll(finished);
    for (size_t i = 0; i < count; ++i) {
      const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& other) {
        return &other.request == finished[i];
      });
      STRATA_CHECK(found != blocks_.end());
      found->done = true;
      using Outcome = io::RingRequest::Outcome;
      broken_ = broken_ || finished[i]->outcome != Outcome::kDone;
      if (finished[i]->outcome == Outcome::kDeadline) throw no_answer("cannot read", *found->file);
    }
    if (!block.done) ring_.wait(kReadWaitS);
  }
}

void DirectReader::drop_front() {
  wait_for(blocks_.front());
  blocks_.pop_front();
}

void DirectReader::drop_before(int64_t group) {
  while (!blocks_.empty() && blocks_.front().group < group) drop_front();
}

bool DirectReader::holds(const File& file, int64_t offset) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](const Block& block) { return block.covers(file, offset); });
}

void DirectReader::skip_to(const File& file, int64_t offset) {
  if (!holds(file, offset)) return;
  while (!blocks_.front().covers(file, offset)) drop_front();
}

DirectReader::Found DirectReader::get(const File& file, int64_t offset) {
  if (!holds(file, offset)) return {};
  skip_to(file, offset);
  Block& block = blocks_.front();
  wait_for(block);
  if (block.request.outcome != io::RingRequest::Outcome::kDone) return {};
  return {buffer_.data() + block.place + (offset - page_of(block.offset)),
          block.offset + block.bytes - offset};
}

}  // namespace strata::model

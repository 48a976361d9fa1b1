// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/direct_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::model {
namespace {

constexpr int64_t kBlockBytes = 4 * kMiB;
constexpr size_t kPartsMax = 256;
constexpr double kWriteWaitS = 1.0;

size_t block_count(const io::HugeMemory& buffer) {
  return static_cast<size_t>(buffer.bytes() / kBlockBytes);
}

}  // namespace

std::unique_ptr<DirectWriter> DirectWriter::open(const std::vector<const File*>& files,
                                                 int64_t bytes) {
  STRATA_CHECK(bytes >= 2 * kBlockBytes);
  std::vector<DirectFile> targets = open_direct(files);
  if (targets.empty()) return nullptr;
  return std::unique_ptr<DirectWriter>(new DirectWriter(std::move(targets), bytes));
}

DirectWriter::DirectWriter(std::vector<DirectFile> targets, int64_t bytes)
    : targets_(std::move(targets)),
      buffer_(bytes),
      blocks_(block_count(buffer_)),
      ring_(ring_options(targets_, blocks_.size())) {
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].data = buffer_.data() + static_cast<int64_t>(i) * kBlockBytes;
}

DirectWriter::Room DirectWriter::room(const File& file, int64_t offset, int64_t bytes) {
  if (failure_) throw *failure_;
  const bool follows =
      filling_ != nullptr && targets_[filling_->target].file == &file && filling_->end == offset;
  if (filling_ != nullptr && !follows) close_block();
  if (filling_ == nullptr) {
    filling_ = &free_block();
    filling_->target = index_of(targets_, file);
    STRATA_CHECK(filling_->target < targets_.size());
    filling_->page = page_of(offset);
    filling_->first = filling_->end = offset;
  }
  const int64_t at = filling_->end - filling_->page;
  return {filling_->data + at, std::min(bytes, kBlockBytes - at)};
}

void DirectWriter::written(int64_t bytes) {
  STRATA_CHECK(filling_ != nullptr);
  filling_->end += bytes;
  STRATA_CHECK(filling_->end <= filling_->page + kBlockBytes);
  if (filling_->end == filling_->page + kBlockBytes) close_block();
}

void DirectWriter::write(const File& file, int64_t offset, const void* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const Room to = room(file, offset + done, bytes - done);
    std::memcpy(to.data, static_cast<const char*>(data) + done, static_cast<size_t>(to.bytes));
    written(to.bytes);
    done += to.bytes;
  }
}

DirectWriter::Block& DirectWriter::free_block() {
  for (;;) {
    for (Block& block : blocks_) {
      if (!block.in_flight) return block;
    }
    wait_for_some();
  }
}

// Writes the whole pages of the block; its other bytes wait for flush().
void DirectWriter::close_block() {
  Block& block = *filling_;
  filling_ = nullptr;
  const int64_t first = round_up(block.first, kPageBytes);
  const int64_t end = page_of(block.end);
  if (first >= end) {
    keep(block, block.first, block.end);
  } else {
    keep(block, block.first, first);
    keep(block, end, block.end);
    block.request = {};
    block.request.direction = io::Direction::kWrite;
    block.request.file = static_cast<uint32_t>(block.target);
    block.request.offset = static_cast<uint64_t>(first);
    block.request.data = block.data + (first - block.page);
    block.request.bytes = static_cast<uint64_t>(end - first);
    block.in_flight = true;
    ring_.submit(&block.request);
    ring_.flush();
  }
  if (parts_.size() > kPartsMax) write_parts();
}

void DirectWriter::keep(const Block& block, int64_t first, int64_t end) {
  if (first == end) return;
  const auto* from = reinterpret_cast<const char*>(block.data) + (first - block.page);
  parts_.push_back({block.target, first, std::string(from, static_cast<size_t>(end - first))});
}

void DirectWriter::wait_for_some() {
  ring_.wait(kWriteWaitS);
  std::vector<io::RingRequest*> finished(blocks_.size());
  const size_t count = ring_.poll(finished);
  for (size_t i = 0; i < count; ++i) settle(*finished[i]);
  if (failure_) throw *failure_;
}

void DirectWriter::settle(const io::RingRequest& request) {
  Block& block = *std::find_if(blocks_.begin(), blocks_.end(),
                               [&](const Block& other) { return &other.request == &request; });
  block.in_flight = false;
  using Outcome = io::RingRequest::Outcome;
  if (request.outcome == Outcome::kDone) return;
  const File& file = *targets_[block.target].file;
  const auto offset = static_cast<int64_t>(request.offset);
  // Some file systems accept O_DIRECT but refuse the transfers.
  if (request.error_number == EINVAL)
    return file.write_at(offset, request.data, static_cast<int64_t>(request.bytes));
  if (request.outcome == Outcome::kDeadline) {
    if (!failure_) failure_ = no_answer("cannot write", file);
    return;
  }
  const int error = request.outcome == Outcome::kNoProgress ? EIO : request.error_number;
  const auto moved = static_cast<int64_t>(request.bytes_moved);
  if (!failure_) failure_ = write_error(file.path(), offset + moved, error);
}

void DirectWriter::write_parts() {
  const auto flies = [](const Block& block) { return block.in_flight; };
  while (std::any_of(blocks_.begin(), blocks_.end(), flies)) wait_for_some();
  for (const Part& part : parts_) {
    targets_[part.target].file->write_at(part.offset, part.bytes.data(),
                                         static_cast<int64_t>(part.bytes.size()));
  }
  parts_.clear();
}

void DirectWriter::flush() {
  if (failure_) throw *failure_;
  if (filling_ != nullptr) close_block();
  write_parts();
}

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#include "engine/data/long_array.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/interrupted.h"
#include "engine/base/units.h"
#include "engine/data/disk_full.h"

namespace strata::data {
namespace {

constexpr int64_t kChecksumBytes = 1 << 20;

// Other programs need some space too: 5% of the disk, and at most 1 GiB.
void require_spare(int file, const std::string& path, int64_t bytes) {
  const BlockingCall call("ask for free space", path);
  struct statvfs info {};
  if (fstatvfs(file, &info) != 0) return;
  const auto of = [&](uint64_t blocks) { return static_cast<int64_t>(blocks * info.f_frsize); };
  const int64_t spare = std::min(kGiB, of(info.f_blocks) / 20);
  if (of(info.f_bavail) >= spare + bytes) return;
  throw DiskFull(ErrorCode::kDoesNotFit,
                 fmt::format("write tokens: {}: its disk has only {} free, which are left to other "
                             "programs (free some space, or give another disk by --data-cache DIR)",
                             path, format_bytes(of(info.f_bavail))));
}

}  // namespace

LongArray::LongArray(int64_t width, int64_t block) : width_(width), block_(block) {
  STRATA_CHECK(width > 0 && block > 0);
}

LongArray LongArray::open(const std::string& path, int64_t width, int64_t count,
                          int64_t offset_bytes) {
  LongArray array(width, std::max<int64_t>(1, kChecksumBytes / width));
  array.path_ = path;
  const BlockingCall call("open", path);
  array.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (array.file_ < 0) {
    throw system_error(ErrorCode::kConfig, fmt::format("open token file: {}", path), errno);
  }
  array.count_ = count;
  array.offset_bytes_ = offset_bytes;
  array.is_whole_ = true;
  return array;
}

LongArray::LongArray(LongArray&& other) noexcept
    : path_(std::move(other.path_)),
      width_(other.width_),
      block_(other.block_),
      count_(other.count_),
      written_(other.written_),
      blocks_(std::move(other.blocks_)),
      file_(std::exchange(other.file_, -1)),
      offset_bytes_(other.offset_bytes_),
      file_bytes_(other.file_bytes_),
      is_whole_(other.is_whole_),
      written_sum_(std::move(other.written_sum_)) {}

LongArray& LongArray::operator=(LongArray&& other) noexcept {
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

LongArray::~LongArray() {
  if (file_ >= 0) close(file_);
}

void LongArray::write_to(const std::string& path) {
  STRATA_CHECK(file_ < 0 && count_ == 0);
  path_ = path;
  written_sum_.emplace(0, 0, 0);
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) throw_not_written(path, errno, ErrorCode::kConfig);
}

void LongArray::append(const void* elements, int64_t count) {
  STRATA_CHECK(!is_whole_ && count >= 0);
  const char* from = static_cast<const char*>(elements);
  while (count > 0) {
    const int64_t in_block = count_ % block_;
    if (in_block == 0) {
      blocks_.push_back(
          std::make_unique_for_overwrite<char[]>(static_cast<size_t>(block_ * width_)));
    }
    const int64_t now = std::min(count, block_ - in_block);
    std::memcpy(blocks_.back().get() + in_block * width_, from, static_cast<size_t>(now * width_));
    from += now * width_;
    count -= now;
    count_ += now;
  }
}

void LongArray::truncate(int64_t count) {
  STRATA_CHECK(!is_whole_ && count >= first_in_memory() && count <= count_);
  count_ = count;
  blocks_.resize(static_cast<size_t>(ceil_div(count, block_) - written_));
}

void LongArray::settle(int64_t count) {
  STRATA_CHECK(count <= count_);
  if (file_ < 0 || is_whole_) return;
  while (first_in_memory() + block_ <= count) {
    write_block(blocks_.front().get(), block_ * width_);
    blocks_.pop_front();
    ++written_;
  }
}

void LongArray::finish() {
  STRATA_CHECK(file_ >= 0 && !is_whole_);
  settle(count_);
  if (count_ > first_in_memory()) {
    write_block(blocks_.front().get(), (count_ - first_in_memory()) * width_);
  }
  blocks_.clear();
  is_whole_ = true;
  const BlockingCall call("sync", path_);
  if (uninterrupted([&] { return fsync(file_); }) != 0) throw_not_written(path_, errno);
}

void LongArray::write_block(const char* from, int64_t bytes) {
  require_spare(file_, path_, bytes);
  for (int64_t done = 0; done < bytes;) {
    const ssize_t put = [&] {
      const BlockingCall call("write", path_);
      return pwrite(file_, from + done, static_cast<size_t>(bytes - done), file_bytes_ + done);
    }();
    if (put >= 0) {
      done += put;
    } else if (errno != EINTR) {
      throw_not_written(path_, errno);
    }
  }
  // Dirty pages shall not pile up until the end.
  const BlockingCall call("write", path_);
  (void)sync_file_range(file_, file_bytes_, bytes, SYNC_FILE_RANGE_WRITE);
  file_bytes_ += bytes;
  written_sum_->add(from, static_cast<uint64_t>(bytes));
}

void* LongArray::at(int64_t index) {
  STRATA_CHECK(index >= first_in_memory() && index < count_);
  const int64_t place = index - first_in_memory();
  return blocks_[static_cast<size_t>(place / block_)].get() + place % block_ * width_;
}

void LongArray::read(int64_t first, int64_t count, void* out) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= count_);
  char* to = static_cast<char*>(out);
  const int64_t in_file = is_whole_ ? count_ : first_in_memory();
  if (first < in_file) {
    const int64_t now = std::min(count, in_file - first);
    read_file(first, now, to);
    first += now;
    count -= now;
    to += now * width_;
  }
  while (count > 0) {
    const int64_t place = first - first_in_memory();
    const int64_t now = std::min(count, block_ - place % block_);
    std::memcpy(to, blocks_[static_cast<size_t>(place / block_)].get() + place % block_ * width_,
                static_cast<size_t>(now * width_));
    first += now;
    count -= now;
    to += now * width_;
  }
}

void LongArray::read_file(int64_t first, int64_t count, char* out) const {
  const int64_t bytes = count * width_;
  const int64_t begin = offset_bytes_ + first * width_;
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = [&] {
      const BlockingCall call("read", path_);
      return pread(file_, out + done, static_cast<size_t>(bytes - done), begin + done);
    }();
    if (got > 0) {
      done += got;
    } else if (got == 0) {
      throw Error(ErrorCode::kIo,
                  fmt::format("read token file: {}: byte {}: the file has become shorter (do not "
                              "change it during the run)",
                              path_, begin + done));
    } else if (errno != EINTR) {
      throw system_error(ErrorCode::kIo,
                         fmt::format("read token file: {}: byte {}", path_, begin + done), errno);
    }
  }
}

int64_t LongArray::bytes() const {
  return static_cast<int64_t>(blocks_.size()) * block_ * width_;
}

uint64_t LongArray::checksum(uint64_t tag, uint64_t address) const {
  return checksum_by({static_cast<uint64_t>(count_ * width_), tag, address});
}

uint64_t LongArray::read_checksum() const {
  return checksum_by({0, 0, 0});
}

uint64_t LongArray::checksum_by(io::ChecksumStream stream) const {
  const int64_t step = std::max<int64_t>(1, kChecksumBytes / width_);
  std::vector<char> chunk(static_cast<size_t>(std::min(step, count_) * width_));
  for (int64_t first = 0; first < count_; first += step) {
    const int64_t now = std::min(step, count_ - first);
    read(first, now, chunk.data());
    stream.add(chunk.data(), static_cast<uint64_t>(now * width_));
  }
  return stream.value();
}

int64_t LongArray::file_size() const {
  struct stat info {};
  if (fstat(file_, &info) != 0) {
    throw system_error(ErrorCode::kConfig, fmt::format("open token file: {}", path_), errno);
  }
  return S_ISREG(info.st_mode) ? info.st_size : -1;
}

void LongArray::expect_random_reads() const {
  if (file_ >= 0) (void)posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM);
}

bool NumberReader::fill() {
  constexpr int64_t kCount = 16384;
  const int64_t count = std::min(kCount, numbers_.size() - next_);
  if (count <= 0) return false;
  read_ = numbers_.read(next_, count);
  next_ += count;
  at_ = 0;
  return true;
}

}  // namespace strata::data

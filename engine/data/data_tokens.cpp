// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_tokens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "io/checksum.h"

namespace strata::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kBlockTokens = 1 << 20;
constexpr int64_t kChunkTokens = 4096;
constexpr int64_t kCheckedAtOpenBytes = int64_t{1} << 30;
constexpr int32_t kLlmcMagic16 = 20240520;
constexpr int32_t kLlmcMagic32 = 20240801;
constexpr int64_t kLlmcHeaderBytes = 1024;

int64_t pread_all(int file, char* out, int64_t bytes, int64_t offset_bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(file, out + done, static_cast<size_t>(bytes - done), offset_bytes + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
  }
  return done;
}

void widen(const void* raw, int64_t width, int64_t count, int32_t* ids) {
  if (width == 4) {
    std::memcpy(ids, raw, static_cast<size_t>(count) * 4);
    return;
  }
  const char* at = static_cast<const char*>(raw);
  for (int64_t k = 0; k < count; ++k) {
    uint16_t id = 0;
    std::memcpy(&id, at + 2 * k, 2);
    ids[k] = id;
  }
}

}  // namespace

TokenSequence::TokenSequence(std::string name, int64_t vocabulary)
    : name_(std::move(name)), vocabulary_(vocabulary), width_(width_of(vocabulary)) {
  STRATA_CHECK(vocabulary > 0);
}

TokenSequence::TokenSequence(TokenSequence&& other) noexcept
    : name_(std::move(other.name_)),
      format_(std::move(other.format_)),
      vocabulary_(other.vocabulary_),
      width_(other.width_),
      count_(other.count_),
      blocks_(std::move(other.blocks_)),
      masked_(std::move(other.masked_)),
      masked_count_(other.masked_count_),
      file_(std::exchange(other.file_, -1)),
      file_offset_bytes_(other.file_offset_bytes_) {}

TokenSequence::~TokenSequence() {
  if (file_ >= 0) close(file_);
}

bool TokenSequence::is_llmc_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  int32_t magic = 0;
  const int64_t got = pread_all(file, reinterpret_cast<char*>(&magic), 4, 0);
  close(file);
  return got == 4 && (magic == kLlmcMagic16 || magic == kLlmcMagic32);
}

TokenSequence TokenSequence::open_file(const std::string& path, int64_t vocabulary) {
  TokenSequence result(path, vocabulary);
  const auto refuse = [&](const std::string& cause) {
    return Error(ErrorCode::kConfig, fmt::format("open token file: {}: {}", path, cause));
  };
  result.file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (result.file_ < 0 || fstat(result.file_, &info) != 0) {
    throw system_error(ErrorCode::kConfig, fmt::format("open token file: {}", path), errno);
  }
  if (!S_ISREG(info.st_mode)) throw refuse("it is not a regular file (give a file)");
  std::array<int32_t, 3> header = {0, 0, 0};
  pread_all(result.file_, reinterpret_cast<char*>(header.data()), sizeof header, 0);
  const bool is_llmc = header[0] == kLlmcMagic16 || header[0] == kLlmcMagic32;
  if (is_llmc) {
    result.width_ = header[0] == kLlmcMagic16 ? 2 : 4;
    result.file_offset_bytes_ = kLlmcHeaderBytes;
    result.count_ = header[2];
    const int64_t wanted_bytes = kLlmcHeaderBytes + result.count_ * result.width_;
    if (result.count_ < 0 || info.st_size != wanted_bytes) {
      throw refuse(
          fmt::format("its header says {} tokens of {} bytes, but the file has {} bytes "
                      "instead of {} (fetch it again: it is truncated, or not an llm.c file)",
                      header[2], result.width_, info.st_size, wanted_bytes));
    }
  } else {
    if (info.st_size % result.width_ != 0) {
      throw refuse(fmt::format(
          "its {} bytes are not a whole number of {}-bit tokens, the kind that a vocabulary of {} "
          "has (write it with those)",
          info.st_size, 8 * result.width_, vocabulary));
    }
    result.count_ = info.st_size / result.width_;
  }
  result.format_ =
      fmt::format("{}-bit tokens{}", 8 * result.width_, is_llmc ? " with an llm.c header" : "");
  std::vector<int32_t> ids(static_cast<size_t>(kBlockTokens));
  const int64_t checked = std::min(result.count_, kCheckedAtOpenBytes / result.width_);
  for (int64_t first = 0; first < checked; first += kBlockTokens) {
    result.read(first, std::min(kBlockTokens, checked - first), ids.data());
  }
  return result;
}

void TokenSequence::append(const std::vector<int32_t>& ids, bool are_targets) {
  STRATA_CHECK(file_ < 0);
  check(ids.data(), count_, static_cast<int64_t>(ids.size()));
  if (!are_targets) mark_masked(count_, static_cast<int64_t>(ids.size()));
  for (const int32_t id : ids) {
    const int64_t in_block = count_ % kBlockTokens;
    if (in_block == 0) {
      blocks_.push_back(std::make_unique<char[]>(static_cast<size_t>(kBlockTokens * width_)));
    }
    std::memcpy(blocks_.back().get() + in_block * width_, &id, static_cast<size_t>(width_));
    ++count_;
  }
}

void TokenSequence::mark_masked(int64_t first, int64_t count) {
  masked_.resize(static_cast<size_t>((first + count + 63) / 64));
  for (int64_t k = first; k < first + count; ++k) {
    masked_[static_cast<size_t>(k / 64)] |= uint64_t{1} << (k % 64);
  }
  masked_count_ += count;
}

void TokenSequence::truncate(int64_t count) {
  STRATA_CHECK(file_ < 0 && count >= 0 && count <= count_);
  if (masked_count_ > 0) masked_count_ -= count_ - count - target_count(count, count_ - count);
  count_ = count;
  blocks_.resize(static_cast<size_t>(ceil_div(count, kBlockTokens)));
  if (static_cast<int64_t>(masked_.size()) * 64 <= count) return;
  masked_.resize(static_cast<size_t>(ceil_div(count, int64_t{64})));
  if (count % 64 != 0) masked_.back() &= ~(~uint64_t{0} << (count % 64));
}

bool TokenSequence::is_target(int64_t index) const {
  const auto word = static_cast<size_t>(index / 64);
  return word >= masked_.size() || (masked_[word] >> (index % 64) & 1) == 0;
}

int64_t TokenSequence::target_count(int64_t first, int64_t count) const {
  if (masked_count_ == 0) return count;
  int64_t masked = 0;
  for (int64_t k = first; k < first + count;) {
    const auto word = static_cast<size_t>(k / 64);
    if (word >= masked_.size()) break;
    const int64_t bits = std::min(64 - k % 64, first + count - k);
    const uint64_t wanted = ~uint64_t{0} >> (64 - bits) << (k % 64);
    masked += std::popcount(masked_[word] & wanted);
    k += bits;
  }
  return count - masked;
}

void TokenSequence::read_raw(int64_t first, int64_t count, void* out) const {
  if (file_ < 0) {
    const char* block = blocks_[static_cast<size_t>(first / kBlockTokens)].get();
    std::memcpy(out, block + first % kBlockTokens * width_, static_cast<size_t>(count * width_));
    return;
  }
  const int64_t wanted = count * width_;
  const int64_t got =
      pread_all(file_, static_cast<char*>(out), wanted, file_offset_bytes_ + first * width_);
  if (got < 0) {
    throw system_error(ErrorCode::kIo, fmt::format("read token file: {}: token {}", name_, first),
                       errno);
  }
  if (got < wanted) {
    throw Error(ErrorCode::kIo, fmt::format("read token file: {}: token {}: the file has become "
                                            "shorter (do not change it during the run)",
                                            name_, first + got / width_));
  }
}

void TokenSequence::read(int64_t first, int64_t count, int32_t* ids) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= count_);
  char raw[kChunkTokens * 4];
  while (count > 0) {
    int64_t now = std::min(count, kChunkTokens);
    if (file_ < 0) now = std::min(now, kBlockTokens - first % kBlockTokens);
    read_raw(first, now, raw);
    widen(raw, width_, now, ids);
    if (file_ >= 0) check(ids, first, now);
    first += now;
    ids += now;
    count -= now;
  }
}

void TokenSequence::check(const int32_t* ids, int64_t first, int64_t count) const {
  for (int64_t k = 0; k < count; ++k) {
    if (ids[k] >= 0 && ids[k] < vocabulary_) continue;
    throw Error(
        ErrorCode::kConfig,
        fmt::format("read tokens: {}: token {} has id {}, but the vocabulary has {} entries (use "
                    "data made with the tokenizer of this model)",
                    name_, first + k, static_cast<uint32_t>(ids[k]), vocabulary_));
  }
}

uint64_t TokenSequence::fingerprint() const {
  uint64_t hash = static_cast<uint64_t>(count_);
  std::vector<int32_t> ids(static_cast<size_t>(kChunkTokens));
  const int64_t hashed = std::min(count_, kCheckedAtOpenBytes / width_);
  for (int64_t first = 0; first < hashed; first += kChunkTokens) {
    const int64_t now = std::min(kChunkTokens, hashed - first);
    read(first, now, ids.data());
    hash = io::checksum_block(ids.data(), static_cast<uint64_t>(now) * sizeof(int32_t), hash,
                              static_cast<uint64_t>(first));
  }
  return io::checksum_block(masked_.data(), masked_.size() * sizeof(uint64_t), hash,
                            static_cast<uint64_t>(masked_count_));
}

int64_t TokenSequence::width_of(int64_t vocabulary) {
  return vocabulary > 65536 ? 4 : 2;
}

int64_t TokenSequence::block_bytes(int64_t vocabulary) {
  return kBlockTokens * width_of(vocabulary);
}

int64_t TokenSequence::bytes() const {
  return static_cast<int64_t>(blocks_.size()) * kBlockTokens * width_ +
         static_cast<int64_t>(masked_.capacity()) * 8;
}

}  // namespace strata::data

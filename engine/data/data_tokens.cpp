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
constexpr int64_t kBlockMasks = 8192;
constexpr int64_t kChunkTokens = 4096;
constexpr int64_t kChunkMasks = 64;
constexpr int64_t kCheckedAtOpenBytes = int64_t{1} << 30;
constexpr int32_t kLlmcMagic16 = 20240520;
constexpr int32_t kLlmcMagic32 = 20240801;
constexpr int64_t kLlmcHeaderBytes = 1024;

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
    : name_(std::move(name)),
      vocabulary_(vocabulary),
      ids_(width_of(vocabulary), kBlockTokens),
      masks_(sizeof(uint64_t), kBlockMasks) {
  STRATA_CHECK(vocabulary > 0);
}

TokenSequence::TokenSequence(std::string name, int64_t vocabulary, LongArray ids, LongArray masks,
                             int64_t masked_count)
    : name_(std::move(name)),
      vocabulary_(vocabulary),
      ids_(std::move(ids)),
      masks_(std::move(masks)),
      masked_count_(masked_count),
      checks_reads_(true) {}

bool TokenSequence::is_llmc_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  int32_t magic = 0;
  const ssize_t got = pread(file, &magic, sizeof magic, 0);
  close(file);
  return got == sizeof magic && (magic == kLlmcMagic16 || magic == kLlmcMagic32);
}

TokenSequence TokenSequence::open_file(const std::string& path, int64_t vocabulary) {
  const auto refuse = [&](const std::string& cause) {
    return Error(ErrorCode::kConfig, fmt::format("open token file: {}: {}", path, cause));
  };
  int64_t width = width_of(vocabulary);
  LongArray bytes = LongArray::open(path, 1, 0);
  const int64_t size = bytes.file_size();
  if (size < 0) throw refuse("it is not a regular file (give a file)");
  std::array<int32_t, 3> header = {0, 0, 0};
  bytes = LongArray::open(path, 1, size);
  bytes.read(0, std::min<int64_t>(size, sizeof header), header.data());
  const bool is_llmc = header[0] == kLlmcMagic16 || header[0] == kLlmcMagic32;
  int64_t count = size / width;
  if (is_llmc) {
    width = header[0] == kLlmcMagic16 ? 2 : 4;
    count = header[2];
    const int64_t wanted_bytes = kLlmcHeaderBytes + count * width;
    if (count < 0 || size != wanted_bytes) {
      throw refuse(
          fmt::format("its header says {} tokens of {} bytes, but the file has {} bytes "
                      "instead of {} (fetch it again: it is truncated, or not an llm.c file)",
                      header[2], width, size, wanted_bytes));
    }
  } else if (size % width != 0) {
    throw refuse(fmt::format(
        "its {} bytes are not a whole number of {}-bit tokens, the kind that a vocabulary of {} "
        "has (write it with those)",
        size, 8 * width, vocabulary));
  }
  TokenSequence result(path, vocabulary,
                       LongArray::open(path, width, count, is_llmc ? kLlmcHeaderBytes : 0),
                       LongArray(sizeof(uint64_t), kBlockMasks), 0);
  result.format_ =
      fmt::format("{}-bit tokens{}", 8 * width, is_llmc ? " with an llm.c header" : "");
  std::vector<int32_t> ids(static_cast<size_t>(kBlockTokens));
  const int64_t checked = std::min(count, kCheckedAtOpenBytes / width);
  for (int64_t first = 0; first < checked; first += kBlockTokens) {
    result.read(first, std::min(kBlockTokens, checked - first), ids.data());
  }
  return result;
}

void TokenSequence::write_to(const std::string& ids_path, const std::string& masks_path) {
  ids_.write_to(ids_path);
  masks_.write_to(masks_path);
}

void TokenSequence::append(const std::vector<int32_t>& ids, bool are_targets) {
  check(ids.data(), count(), static_cast<int64_t>(ids.size()));
  if (!are_targets) mark_masked(count(), static_cast<int64_t>(ids.size()));
  if (ids_.width() == sizeof(int32_t)) {
    return ids_.append(ids.data(), static_cast<int64_t>(ids.size()));
  }
  uint16_t narrow[kChunkTokens];
  for (size_t first = 0; first < ids.size(); first += kChunkTokens) {
    const size_t now = std::min<size_t>(kChunkTokens, ids.size() - first);
    for (size_t k = 0; k < now; ++k) narrow[k] = static_cast<uint16_t>(ids[first + k]);
    ids_.append(narrow, static_cast<int64_t>(now));
  }
}

void TokenSequence::mark_masked(int64_t first, int64_t count) {
  constexpr uint64_t kZero = 0;
  while (masks_.count() * 64 < first + count) {
    masks_.append(&kZero, 1);
    // Words before the first of these tokens have all their bits.
    masks_.settle(std::min(masks_.count(), settled_ / 64));
  }
  const int64_t end = first + count;
  for (int64_t k = first; k < end;) {
    const int64_t bits = std::min(64 - k % 64, end - k);
    *static_cast<uint64_t*>(masks_.at(k / 64)) |= ~uint64_t{0} >> (64 - bits) << (k % 64);
    k += bits;
  }
  masked_count_ += count;
}

void TokenSequence::truncate(int64_t count) {
  STRATA_CHECK(count >= 0 && count <= this->count());
  if (masked_count_ > 0) {
    const int64_t taken = this->count() - count;
    masked_count_ -= taken - target_count(count, taken);
  }
  ids_.truncate(count);
  if (masks_.count() * 64 <= count) return;
  masks_.truncate(ceil_div(count, int64_t{64}));
  if (count % 64 == 0) return;
  *static_cast<uint64_t*>(masks_.at(count / 64)) &= ~(~uint64_t{0} << (count % 64));
}

void TokenSequence::clear() {
  STRATA_CHECK(!ids_.is_in_file());
  settled_ = 0;
  truncate(0);
}

void TokenSequence::settle() {
  settled_ = count();
  ids_.settle(settled_);
  masks_.settle(std::min(masks_.count(), settled_ / 64));
}

void TokenSequence::finish() {
  ids_.finish();
  masks_.finish();
}

template <typename Visit>
void TokenSequence::each_masks(int64_t first, int64_t count, const Visit& visit) const {
  uint64_t words[kChunkMasks];
  const int64_t end = std::min(first + count, masks_.count() * 64);
  while (first < end) {
    const int64_t word = first / 64;
    const int64_t now = std::min(kChunkMasks, ceil_div(end, int64_t{64}) - word);
    masks_.read(word, now, words);
    for (int64_t k = 0; k < now; ++k) {
      const int64_t bits = std::min(64 - first % 64, end - first);
      visit(words[k] >> (first % 64) & ~uint64_t{0} >> (64 - bits), first);
      first += bits;
    }
  }
}

bool TokenSequence::is_target(int64_t index) const {
  return target_count(index, 1) == 1;
}

void TokenSequence::mask(int64_t first, int64_t count, int32_t* values) const {
  if (masked_count_ == 0) return;
  each_masks(first, count, [&](uint64_t masked, int64_t at) {
    for (; masked != 0; masked &= masked - 1) {
      values[at - first + std::countr_zero(masked)] = -1;
    }
  });
}

int64_t TokenSequence::target_count(int64_t first, int64_t count) const {
  int64_t targets = count;
  if (masked_count_ == 0) return targets;
  each_masks(first, count, [&](uint64_t masked, int64_t) { targets -= std::popcount(masked); });
  return targets;
}

void TokenSequence::read(int64_t first, int64_t count, int32_t* ids) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= this->count());
  char raw[kChunkTokens * 4];
  while (count > 0) {
    const int64_t now = std::min(count, kChunkTokens);
    ids_.read(first, now, raw);
    widen(raw, ids_.width(), now, ids);
    if (checks_reads_) check(ids, first, now);
    first += now;
    ids += now;
    count -= now;
  }
}

void TokenSequence::check(const int32_t* ids, int64_t first, int64_t count) const {
  uint32_t largest = 0;
  for (int64_t k = 0; k < count; ++k) largest = std::max(largest, static_cast<uint32_t>(ids[k]));
  if (largest < vocabulary_) return;
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
  uint64_t hash = static_cast<uint64_t>(count());
  std::vector<int32_t> ids(static_cast<size_t>(kChunkTokens));
  const int64_t hashed = std::min(count(), kCheckedAtOpenBytes / ids_.width());
  for (int64_t first = 0; first < hashed; first += kChunkTokens) {
    const int64_t now = std::min(kChunkTokens, hashed - first);
    read(first, now, ids.data());
    hash = io::checksum_block(ids.data(), static_cast<uint64_t>(now) * sizeof(int32_t), hash,
                              static_cast<uint64_t>(first));
  }
  return masks_.checksum(hash, static_cast<uint64_t>(masked_count_));
}

int64_t TokenSequence::width_of(int64_t vocabulary) {
  return vocabulary > 65536 ? 4 : 2;
}

int64_t TokenSequence::block_bytes(int64_t vocabulary) {
  return kBlockTokens * width_of(vocabulary);
}

int64_t TokenSequence::bytes() const {
  return ids_.bytes() + masks_.bytes();
}

}  // namespace strata::data

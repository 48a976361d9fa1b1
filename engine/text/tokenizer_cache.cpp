// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_cache.h"

#include <cstring>

namespace strata::text {
namespace {

constexpr size_t kCachedBytesMax = 64;
constexpr size_t kSlots = size_t{1} << 18;
constexpr size_t kWordsMax = kSlots / 2;
constexpr size_t kTextBytesMax = 4 << 20;
constexpr size_t kIdsMax = 1 << 20;

uint64_t hash_of_word(std::string_view word) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ word.size();
  const char* at = word.data();
  size_t left = word.size();
  while (left > 0) {
    uint64_t block = 0;
    const size_t bytes = left < 8 ? left : 8;
    std::memcpy(&block, at, bytes);
    hash = (hash ^ block) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    at += bytes;
    left -= bytes;
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace

size_t TokenizerCache::find_slot(uint64_t hash, std::string_view word) const {
  size_t slot = hash & (kSlots - 1);
  while (entries_[slot].hash != 0) {
    const Entry& entry = entries_[slot];
    if (entry.hash == hash && entry.text_bytes == word.size() &&
        std::memcmp(texts_.data() + entry.text_offset, word.data(), word.size()) == 0) {
      break;
    }
    slot = (slot + 1) & (kSlots - 1);
  }
  return slot;
}

bool TokenizerCache::append(std::string_view word, std::vector<int32_t>* ids) {
  if (word.size() > kCachedBytesMax || entries_.empty()) return false;
  const Entry& entry = entries_[find_slot(hash_of_word(word), word)];
  if (entry.hash == 0) return false;
  const int32_t* first = ids_.data() + entry.ids_offset;
  ids->insert(ids->end(), first, first + entry.id_count);
  return true;
}

void TokenizerCache::insert(std::string_view word, const int32_t* ids, size_t count) {
  if (word.size() > kCachedBytesMax) return;
  const bool is_full = count_ == kWordsMax || texts_.size() + word.size() > kTextBytesMax ||
                       ids_.size() + count > kIdsMax;
  if (entries_.empty() || is_full) clear();
  const uint64_t hash = hash_of_word(word);
  Entry& entry = entries_[find_slot(hash, word)];
  entry = {hash, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
           static_cast<uint16_t>(word.size()), static_cast<uint16_t>(count)};
  texts_ += word;
  ids_.insert(ids_.end(), ids, ids + count);
  ++count_;
}

void TokenizerCache::clear() {
  entries_.assign(kSlots, Entry{});
  texts_.clear();
  ids_.clear();
  count_ = 0;
}

}  // namespace strata::text

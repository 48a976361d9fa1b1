// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_cache.h"

#include <cstring>

#include "engine/base/check.h"

namespace strata::text {

namespace {

template <class T>
T load(const char* at) {
  T value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Fewer than 8 bytes, and zeros behind them.
uint64_t load_some(const char* at, size_t bytes) {
  if (bytes >= 4) {
    return load<uint32_t>(at) | uint64_t{load<uint32_t>(at + bytes - 4)} << (bytes - 4) * 8;
  }
  uint64_t value = 0;
  for (size_t k = 0; k < bytes; ++k) value |= uint64_t{static_cast<uint8_t>(at[k])} << k * 8;
  return value;
}

}  // namespace

// The text is read into registers: the processor would wait for parts that are read right after
// their bytes are stored.
void TokenizerCache::Word::assign(std::string_view text) {
  constexpr std::array<uint64_t, 5> kFactors = {0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u,
                                                0xC2B2AE3D27D4EB4Fu, 0xA0761D6478BD642Fu,
                                                0xE7037ED1A0B428DBu};
  STRATA_CHECK(!text.empty() && text.size() <= kWordBytesMax);
  const size_t whole_parts = text.size() / 8;
  uint64_t hash = text.size();
  for (size_t k = 0; k < parts_.size(); ++k) {
    const char* at = text.data() + 8 * k;
    const uint64_t part = k < whole_parts    ? load<uint64_t>(at)
                          : k == whole_parts ? load_some(at, text.size() % 8)
                                             : 0;
    parts_[k] = part;
    const uint64_t product = (part ^ kFactors[4 - k]) * kFactors[k];
    hash += product ^ product >> 32;
  }
  hash *= kFactors[0];
  hash_ = hash ^ hash >> 29;
  bytes_ = static_cast<uint8_t>(text.size());
}

// Whole parts are compared, whatever the length is.
bool TokenizerCache::is_of(const Entry& entry, const Word& word) {
  if (entry.hash != static_cast<uint32_t>(word.hash_ >> 32) || entry.bytes != word.bytes_) {
    return false;
  }
  static_assert(kWordBytesMax == 34);
  uint64_t differing = 0;
  for (size_t k = 0; k < 4; ++k) {
    uint64_t part = 0;
    std::memcpy(&part, entry.text.data() + 8 * k, sizeof part);
    differing |= part ^ word.parts_[k];
  }
  uint16_t end = 0;
  std::memcpy(&end, entry.text.data() + 32, sizeof end);
  return (differing | (end ^ word.parts_[4])) == 0;
}

bool TokenizerCache::append(const Word& word, std::vector<int32_t>* ids) const {
  if (entries_.empty()) return false;
  const Entry* entry = &entries_[place_of(word)];
  if (!is_of(*entry, word) && !is_of(*++entry, word)) return false;
  if (entry->id_count == 1) {
    ids->push_back(entry->ids[0]);
  } else {
    ids->insert(ids->end(), entry->ids.begin(), entry->ids.begin() + entry->id_count);
  }
  return true;
}

void TokenizerCache::insert(const Word& word, const int32_t* ids, size_t count) {
  if (count > kIds) return;
  if (entries_.empty()) entries_.resize(2 * kWords);
  Entry* pair = &entries_[place_of(word)];
  pair[1] = pair[0];
  std::memcpy(pair[0].text.data(), word.parts_.data(), kWordBytesMax);
  pair[0].bytes = word.bytes_;
  pair[0].id_count = static_cast<uint8_t>(count);
  pair[0].hash = static_cast<uint32_t>(word.hash_ >> 32);
  for (size_t k = 0; k < count; ++k) pair[0].ids[k] = ids[k];
}

bool TokenizerCache::find_pair(int32_t left, int32_t right, PairIds* found) const {
  if (pairs_.empty()) return false;
  const uint64_t pair = pair_of(left, right);
  const PairEntry& entry = pairs_[place_of(pair)];
  if (entry.pair != pair) return false;
  found->count = 0;
  for (uint64_t ids = entry.ids; ids != 0; ids >>= kIdBits) {
    found->ids[found->count++] = static_cast<int32_t>(ids & ((1 << kIdBits) - 1)) - 1;
  }
  return true;
}

void TokenizerCache::insert_pair(int32_t left, int32_t right, const PairIds& ids) {
  uint64_t packed = 0;
  for (size_t k = ids.count; k-- > 0;) {
    if (ids.ids[k] + 1 >= 1 << kIdBits) return;
    packed = packed << kIdBits | static_cast<uint64_t>(ids.ids[k] + 1);
  }
  if (pairs_.empty()) pairs_.resize(kPairs);
  const uint64_t pair = pair_of(left, right);
  pairs_[place_of(pair)] = {pair, packed};
}

}  // namespace strata::text

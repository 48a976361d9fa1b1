// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_cache.h"

#include <cstring>

#include "engine/base/check.h"

namespace strata::text {

TokenizerCache::Word::Word(std::string_view text) : bytes_(static_cast<uint8_t>(text.size())) {
  constexpr std::array<uint64_t, 5> kFactors = {0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u,
                                                0xC2B2AE3D27D4EB4Fu, 0xA0761D6478BD642Fu,
                                                0xE7037ED1A0B428DBu};
  STRATA_CHECK(!text.empty() && text.size() <= kWordBytesMax);
  std::memcpy(parts_.data(), text.data(), text.size());
  hash_ = text.size();
  for (size_t k = 0; k < parts_.size(); ++k) {
    const uint64_t product = (parts_[k] ^ kFactors[4 - k]) * kFactors[k];
    hash_ += product ^ product >> 32;
  }
  hash_ *= kFactors[0];
  hash_ ^= hash_ >> 29;
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
  if (entries_.empty()) entries_.resize(2 * kPairs);
  Entry* pair = &entries_[place_of(word)];
  pair[1] = pair[0];
  std::memcpy(pair[0].text.data(), word.parts_.data(), kWordBytesMax);
  pair[0].bytes = word.bytes_;
  pair[0].id_count = static_cast<uint8_t>(count);
  pair[0].hash = static_cast<uint32_t>(word.hash_ >> 32);
  for (size_t k = 0; k < count; ++k) pair[0].ids[k] = ids[k];
}

}  // namespace strata::text

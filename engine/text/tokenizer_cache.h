// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/text/token_model.h"

namespace strata::text {

// What the texts of two tokens become together, when a cut was between them.
struct PairIds {
  static constexpr size_t kIds = 3;
  uint32_t count = 0;  // 0: the two tokens themselves
  std::array<int32_t, kIds> ids{};
};

// A cache of the ids of words, which serves most words of a text because prose repeats them; and of
// those of pairs of tokens at cuts.
//
// A word is looked for in two places, so that a look-up touches two cache lines at most; a new word
// takes the place of the older one. Words of more than 6 ids are not kept. A pair has one place.
// Memory: kBytesMax, from the first word and the first pair on.
class TokenizerCache {
 public:
  static constexpr int64_t kWordBytes = 8 << 20;
  static constexpr int64_t kPairBytes = 1 << 19;
  static constexpr int64_t kBytesMax = kWordBytes + kPairBytes;
  static constexpr size_t kWordBytesMax = 34;  // of a word that may be kept

  // A copy of a word of at most kWordBytesMax bytes, and where it is looked for.
  class Word {
   public:
    Word() = default;
    explicit Word(std::string_view text) { assign(text); }
    void assign(std::string_view text);
    std::string_view text() const { return {reinterpret_cast<const char*>(parts_.data()), bytes_}; }

   private:
    friend class TokenizerCache;
    std::array<uint64_t, 5> parts_{};  // the text, and zeros behind it
    uint64_t hash_ = 0;
    uint8_t bytes_ = 0;
  };

  // Tells the processor that the word is looked for soon.
  void prefetch(const Word& word) const {
    if (!entries_.empty()) __builtin_prefetch(&entries_[place_of(word)]);
  }
  // Appends the ids of the word when they are known.
  bool append(const Word& word, std::vector<int32_t>* ids) const;
  void insert(const Word& word, const int32_t* ids, size_t count);

  bool find_pair(int32_t left, int32_t right, PairIds* found) const;
  // Keeps the pair, unless one of the ids is very large.
  void insert_pair(int32_t left, int32_t right, const PairIds& ids);

 private:
  static constexpr size_t kIds = 6;

  struct alignas(64) Entry {
    std::array<char, kWordBytesMax> text;  // and zeros behind it
    uint8_t bytes;                         // 0: free
    uint8_t id_count;
    uint32_t hash;  // the half of it that place_of() does not use
    std::array<int32_t, kIds> ids;
  };
  static_assert(sizeof(Entry) == 64);
  static constexpr size_t kWords = kWordBytes / (2 * sizeof(Entry));

  struct PairEntry {
    uint64_t pair = ~uint64_t{0};
    uint64_t ids = 0;  // one more than each in kIdBits, the first one lowest
  };
  static constexpr size_t kPairs = kPairBytes / sizeof(PairEntry);
  static constexpr int kIdBits = 21;

  static size_t place_of(const Word& word) { return word.hash_ % kWords * 2; }
  static size_t place_of(uint64_t pair) {
    return pair * 0x9E3779B97F4A7C15u >> (64 - std::bit_width(kPairs - 1));
  }
  static bool is_of(const Entry& entry, const Word& word);

  std::vector<Entry> entries_;  // two of each place, the newer one first
  std::vector<PairEntry> pairs_;
};

}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::text {

// A cache of the ids of words, which serves most words of a text because prose repeats them.
//
// A word is looked for in two places, so that a look-up touches two cache lines at most; a new word
// takes the place of the older one. Words of more than 6 ids are not kept. Memory: kBytesMax, from
// the first word on.
class TokenizerCache {
 public:
  static constexpr int64_t kBytesMax = 8 << 20;
  static constexpr size_t kWordBytesMax = 34;  // of a word that may be kept

  // A copy of a word of at most kWordBytesMax bytes, and where it is looked for.
  class Word {
   public:
    Word() = default;
    explicit Word(std::string_view text);
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
  static constexpr size_t kPairs = kBytesMax / (2 * sizeof(Entry));

  static size_t place_of(const Word& word) { return word.hash_ % kPairs * 2; }
  static bool is_of(const Entry& entry, const Word& word);

  std::vector<Entry> entries_;  // in pairs, the newer one first
};

}  // namespace strata::text

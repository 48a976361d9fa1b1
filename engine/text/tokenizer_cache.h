// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// A cache of the ids of words, which serves most words of a text because prose repeats them.
//
// Memory: at most kBytesMax; a full cache is cleared and fills again. Words longer than 64 bytes
// are not kept.
class TokenizerCache {
 public:
  static constexpr int64_t kBytesMax = 16 << 20;

  // Appends the ids of the word when they are known.
  bool append(std::string_view word, std::vector<int32_t>* ids);
  void insert(std::string_view word, const int32_t* ids, size_t count);

 private:
  struct Entry {
    uint64_t hash = 0;  // 0: free
    uint32_t text_offset = 0;
    uint32_t ids_offset = 0;
    uint16_t text_bytes = 0;
    uint16_t id_count = 0;
  };

  size_t find_slot(uint64_t hash, std::string_view word) const;
  void clear();

  std::vector<Entry> entries_;  // open addressing, a power of two
  std::string texts_;
  std::vector<int32_t> ids_;
  size_t count_ = 0;
};

}  // namespace strata::text

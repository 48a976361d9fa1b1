// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strata::text {

// Finds strings of a set in a text: the leftmost match, and of those the longest.
class TokenTrie {
 public:
  struct Match {
    size_t begin;
    size_t end;
    size_t value;  // the value that was added with the string
  };

  // An empty string is never found. Of equal strings, the one added first counts.
  void add(std::string_view content, size_t value);
  bool find(std::string_view text, size_t from, Match* match) const;

 private:
  static constexpr size_t kNoValue = ~size_t{0};

  std::unordered_map<uint64_t, uint32_t> children_;  // node << 8 | byte
  std::vector<size_t> values_ = {kNoValue};          // by node
  std::array<bool, 256> starts_{};                   // bytes that some string starts with
};

}  // namespace strata::text

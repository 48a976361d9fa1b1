// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::text {

// A set of strings with a value each, which is walked byte by byte or searched for in a text.
//
// Memory: 12 to 24 bytes for each different beginning of a string. Threads: any number after the
// last add(). Failure: add() throws Error when there are more than 2^28 beginnings.
class TokenTrie {
 public:
  struct Match {
    size_t begin;
    size_t end;
    size_t value;  // the value that was added with the string
  };
  static constexpr uint32_t kRoot = 0;
  static constexpr int32_t kNoValue = -1;

  // `value` must not be negative. An empty string is never found. Of equal strings, the one added
  // first counts.
  void add(std::string_view content, int32_t value);

  // Finds the leftmost match, and of those the longest.
  bool find(std::string_view text, size_t from, Match* match) const;
  // The longest string that the text starts with; 0 bytes when there is none.
  Match longest_prefix(std::string_view text) const;

  // Goes from a node to the one below it; false when there is none.
  bool walk(uint32_t* node, char byte) const {
    const uint64_t edge = uint64_t{*node} << 8 | static_cast<unsigned char>(byte);
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t slot = slot_of(edge) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (slots_[slot] >> 28 != edge) continue;
      *node = static_cast<uint32_t>(slots_[slot] & kNodeMax);
      return true;
    }
    return false;
  }
  // The value of the string that ends at a node, or kNoValue.
  int32_t value_at(uint32_t node) const { return values_[node]; }
  bool is_empty() const { return edge_count_ == 0; }
  int64_t bytes() const;

 private:
  static constexpr uint64_t kNodeMax = (1u << 28) - 1;

  static uint64_t slot_of(uint64_t edge) {
    edge *= 0x9E3779B97F4A7C15u;
    return edge ^ (edge >> 32);
  }
  size_t next_start(std::string_view text, size_t from) const;
  void insert(uint64_t entry);
  void grow();

  // node << 36 | byte << 28 | child; 0 marks a free slot, as no child is the root. Open addressing,
  // a power of two.
  std::vector<uint64_t> slots_ = std::vector<uint64_t>(16);
  size_t edge_count_ = 0;
  std::vector<int32_t> values_ = {kNoValue};  // by node
  std::array<bool, 256> starts_{};            // bytes that some string starts with
  size_t start_count_ = 0;
  char last_start_ = '\0';  // that was added
};

}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "engine/data/data_records.h"

namespace strata::data {

// The words of a chat that its texts should have: the names of tools and of functions that are
// called, and the first words of the reasoning of the answers that are learned. A template that
// leaves out the reasoning of earlier answers makes several texts, one of which has it. The record
// must outlive it.
class ChatWords {
 public:
  explicit ChatWords(const ChatRecord& record);
  void look_in(std::string_view text);
  // Whether some word was in no text.
  bool are_lost() const { return !words_.empty(); }

 private:
  std::vector<std::string_view> words_;  // not found yet
};

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace strata::text {

std::string StreamDecoder::push(int32_t id) {
  if (!tokenizer_.has(id)) return "";
  ids_.push_back(id);
  return advance(false);
}

std::string StreamDecoder::finish() {
  return advance(true);
}

// Decodes all kept ids and the ids already shown, and returns the difference. A decoder that treats
// the first token specially then treats the same token so both times.
std::string StreamDecoder::advance(bool is_last) {
  const std::vector<int32_t> shown(ids_.begin(),
                                   ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  const std::string before = tokenizer_.decode(shown, skip_special_);
  const std::string after = tokenizer_.decode(ids_, skip_special_);
  const bool is_incomplete = after.ends_with("\xEF\xBF\xBD") && !is_last;
  if (is_incomplete || after.size() <= before.size()) return "";
  const std::vector<int32_t> added(ids_.begin() + static_cast<std::ptrdiff_t>(shown_), ids_.end());
  // Tokens without a text of their own do not show where the text starts.
  if (!tokenizer_.decode(added, skip_special_).empty()) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  }
  shown_ = ids_.size();
  return after.substr(before.size());
}

}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/byte_range.h"
#include "engine/text/tokenizer.h"

namespace strata::text {

// Hands out the ids of a whole text in order, and for each part of them whether they are marked: a
// token that has a byte of a range is, also when it begins before the range. That is the rule of
// Transformers' return_assistant_tokens_mask. `ranges` ascend. Options: without special tokens.
// Memory: the ids between two added tokens. Failure: that of Tokenizer::encode().
using TakeMarked = std::function<void(const std::vector<int32_t>& ids, bool are_marked)>;
void encode_marked(const Tokenizer& tokenizer, std::string_view text,
                   std::span<const ByteRange> ranges, EncodeOptions options,
                   const TakeMarked& take);

}  // namespace strata::text

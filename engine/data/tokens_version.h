// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace strata::data {

// Part of the name of tokens that are kept on disk. Raise it with every change after which the same
// files, tokenizer and options give other tokens, masks, starts, order or reports: in engine/text,
// engine/template, or the records and packing of this folder. Otherwise runs go on with the tokens
// that an older program has kept. TokensVersion.* fails for some of these changes.
inline constexpr int64_t kTokensVersion = 7;

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// What normalizers and pre-tokenizers of BERT and older translation models do to a text. The
// `tokenizers` library takes the properties of characters from Unicode 8 and 9 here, and so do
// these functions, so that newer characters get the same ids. `text` must be well-formed UTF-8.
namespace strata::text {

// Removes control characters, U+0000 and U+FFFD; other white space becomes ' '.
std::string without_controls(std::string_view text);
// Puts spaces around ideographs.
std::string with_spaced_ideographs(std::string_view text);
// Removes nonspacing marks; accents must be characters of their own, as in NFD.
std::string without_accents(std::string_view text);
// Removes marks of all kinds.
std::string without_marks(std::string_view text);
// Removes control characters except for white space, and writes ' ' for white space and marks of
// the text's direction, as the normalizer "Nmt" does.
std::string without_nmt_controls(std::string_view text);

bool is_punctuation(uint32_t code_point);

}  // namespace strata::text

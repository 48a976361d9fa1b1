// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

// Full case mappings of the Unicode Standard, as Python's str.upper(), lower() and title() use
// them: one character may become several, and a capital sigma at the end of a word becomes a final
// one. `text` must be well-formed UTF-8.
std::string to_upper_full(std::string_view text);
std::string to_lower_full(std::string_view text);
// The first character in title case, the rest in lower case: str.capitalize().
std::string capitalize(std::string_view text);
// The first character of each word in title case, the rest in lower case; a word is a run of
// characters with case: str.title().
std::string to_title_full(std::string_view text);

// Properties that Python's string methods ask for.
bool is_upper_case(uint32_t code_point);
bool is_lower_case(uint32_t code_point);
bool is_letter(uint32_t code_point);
bool is_decimal_digit(uint32_t code_point);
// Whether Python's repr() shows the character as it is.
bool is_printable(uint32_t code_point);

}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::templates {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // of a string without quotes and escapes, of a number without underscores
  uint32_t line;
  uint32_t begin;  // of its text in the source
  uint32_t end;
};

// What is wrong with a template, and where.
struct SyntaxError {
  std::string cause;
  uint32_t line;
};

// Line ends become \n, and one at the end of the template is removed, as jinja2 does.
std::string normalized_source(std::string_view text);

// The tokens of a normalized source, cut as jinja2's lexer does with trim_blocks and lstrip_blocks;
// the last is kEnd. Throws SyntaxError.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace strata::templates

// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_decoder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/text/pretokenizer.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

using Tokens = std::vector<std::string>;

// The bytes that a token spells; the token itself when one of its characters is not in the
// alphabet.
std::string bytes_of_token(const ByteAlphabet& alphabet, const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += utf8_length(token[at])) {
    const int byte = alphabet.byte_of(code_point_at(token, at));
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

Tokens run(const DecodeByteLevel&, const Tokens& tokens, AddedBytes& added) {
  const ByteAlphabet alphabet;
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_token(alphabet, token);
  return {replace_invalid_utf8(bytes)};
}

// The byte that "<0xNN>" names; -1 for any other token.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int byte = 0;
  const char* digits = token.data() + 3;
  const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
  return error == std::errc() && end == digits + 2 && byte >= 0 ? byte : -1;
}

Tokens run(const DecodeByteFallback&, Tokens tokens, AddedBytes& added) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (find_invalid_utf8(bytes) == std::string::npos) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  return result;
}

Tokens run(const DecodeFuse&, const Tokens& tokens, AddedBytes& added) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return {std::move(all)};
}

Tokens run(const DecodeMetaspace& step, Tokens tokens, AddedBytes& added) {
  const TextPattern pattern = TextPattern::literal(step.replacement);
  for (size_t k = 0; k < tokens.size(); ++k) {
    tokens[k] = replace_matches(pattern, k == 0 && step.drops_first ? "" : " ", tokens[k], added);
  }
  return tokens;
}

Tokens run(const DecodeReplace& step, Tokens tokens, AddedBytes& added) {
  for (std::string& token : tokens) {
    token = replace_matches(step.pattern, step.content, token, added);
  }
  return tokens;
}

Tokens run(const DecodeStrip& step, Tokens tokens, AddedBytes& added) {
  const size_t bytes = step.character.size();
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (int64_t k = 0; k < step.start && rest.starts_with(step.character); ++k) {
      rest.remove_prefix(bytes);
    }
    for (int64_t k = 0; k < step.stop && rest.ends_with(step.character); ++k) {
      rest.remove_suffix(bytes);
    }
    token = std::string(rest);
  }
  return tokens;
}

}  // namespace

std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  AddedBytes added(bytes);
  for (const DecodeStep& any : steps) {
    tokens = std::visit([&](const auto& step) { return run(step, std::move(tokens), added); }, any);
  }
  return std::move(run(DecodeFuse{}, tokens, added).front());
}

}  // namespace strata::text

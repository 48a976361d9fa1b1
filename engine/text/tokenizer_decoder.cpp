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

void replace_all(std::string* text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size()) {
    text->replace(at, from.size(), to);
  }
}

void clean_up(std::string* token) {
  static constexpr std::pair<const char*, const char*> kReplacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplacements) replace_all(token, from, to);
}

Tokens run(const DecodeWordPiece& step, Tokens tokens, AddedBytes& added) {
  for (size_t k = 0; k < tokens.size(); ++k) {
    std::string& token = tokens[k];
    if (k > 0 && token.starts_with(step.prefix)) {
      token.erase(0, step.prefix.size());
    } else if (k > 0) {
      token.insert(0, " ");
    }
    if (step.cleans_up) clean_up(&token);
  }
  return tokens;
}

// Well-formed characters as they are, U+FFFD for each other byte.
std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  while (true) {
    const size_t invalid = find_invalid_utf8(bytes);
    text += bytes.substr(0, invalid);
    if (invalid == std::string_view::npos) return text;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(invalid + 1);
  }
}

Tokens run(const DecodeSentencePiece& step, const Tokens& tokens, AddedBytes& added) {
  static constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  std::string text;
  std::string bytes;
  bool is_start = true;
  bool has_dropped = false;
  for (const std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    text += text_of_bytes(bytes);
    bytes.clear();
    if (has_dropped || !text.empty()) is_start = false;
    has_dropped = false;
    if (token == step.unknown_token) {
      added.add(step.unknown_text.size());
      text += step.unknown_text;
      continue;
    }
    std::string piece = token;
    if (is_start && step.drops_first_space && piece.starts_with(kSpaceMark)) {
      piece.erase(0, kSpaceMark.size());
      has_dropped = !step.drops_first_spaces;
    }
    replace_all(&piece, kSpaceMark, " ");
    text += piece;
  }
  return {text + text_of_bytes(bytes)};
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

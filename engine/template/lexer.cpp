// SPDX-License-Identifier: Apache-2.0
#include "engine/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/template/python_text.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& cause) const { throw SyntaxError{cause, line_}; }

  bool starts(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  bool starts(size_t at, std::string_view text) const {
    return at <= source_.size() && source_.substr(at).starts_with(text);
  }

  size_t skip_spaces(size_t at) const {
    while (at < source_.size() && is_python_space(text::code_point_at(source_, at))) {
      at += text::utf8_length(source_[at]);
    }
    return at;
  }

  void move_to(size_t at) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    line_starting_ = at > at_ ? source_[at - 1] == '\n' : line_starting_;
    at_ = at;
  }

  void add(TokenKind kind, std::string text, size_t end) {
    tokens_.push_back(
        {kind, std::move(text), line_, static_cast<uint32_t>(at_), static_cast<uint32_t>(end)});
    move_to(end);
  }

  // The text before a tag, without the white space that the tag's sign or lstrip_blocks removes.
  std::string_view before_tag(std::string_view text, size_t sign_at, bool is_variable) const {
    const char sign = sign_at < source_.size() ? source_[sign_at] : ' ';
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 when there is none
    if (line == 0 && !line_starting_) return text;
    return strip(text.substr(line), Side::kRight).empty() ? text.substr(0, line) : text;
  }

  void add_data(std::string_view text, size_t end) {
    if (text.empty()) {
      move_to(end);
    } else {
      add(TokenKind::kData, std::string(text), end);
    }
  }

  static bool has_sign(char c) { return c == '-' || c == '+'; }

  // Behind the end of a tag: "-%}" and white space, "+%}", or "%}" and a newline. kNone when no
  // such end is at `at`.
  size_t end_of_tag(size_t at, std::string_view end, bool trims) const {
    if (starts(at, "-") && starts(at + 1, end)) return skip_spaces(at + 1 + end.size());
    if (trims && starts(at, "+") && starts(at + 1, end)) return at + 1 + end.size();
    if (!starts(at, end)) return kNone;
    at += end.size();
    return trims && starts(at, "\n") ? at + 1 : at;
  }

  void read_data() {
    size_t tag = at_;
    while ((tag = source_.find('{', tag)) != kNone) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == kNone) return add_data(source_.substr(at_), source_.size());
    const char kind = source_[tag + 1];
    add_data(before_tag(source_.substr(at_, tag - at_), tag + 2, kind == '{'), tag);
    size_t inner = tag + 2;
    if (inner < source_.size() && has_sign(source_[inner])) ++inner;
    if (kind == '#') return read_comment(inner);
    if (kind == '%' && read_raw(inner)) return;
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "", inner);
    read_tag(kind == '{');
  }

  void read_comment(size_t inner) {
    for (size_t at = inner; at < source_.size(); ++at) {
      const size_t end = end_of_tag(at, "#}", true);
      if (end != kNone) return move_to(end);
    }
    fail("the end of a comment, #}, is missing");
  }

  // Whether a raw block begins here; it is then read to its end.
  bool read_raw(size_t inner) {
    size_t at = skip_spaces(inner);
    if (!starts(at, "raw")) return false;
    at = skip_spaces(at + 3);
    if (starts(at, "-%}")) {
      at = skip_spaces(at + 3);
    } else if (starts(at, "%}")) {
      at += 2;
    } else {
      return false;
    }
    move_to(at);
    for (size_t tag = source_.find("{%", at_); tag != kNone; tag = source_.find("{%", tag + 1)) {
      size_t word = tag + 2;
      if (word < source_.size() && has_sign(source_[word])) ++word;
      word = skip_spaces(word);
      if (!starts(word, "endraw")) continue;
      const size_t end = end_of_tag(skip_spaces(word + 6), "%}", true);
      if (end == kNone) continue;
      add_data(before_tag(source_.substr(at_, tag - at_), tag + 2, false), end);
      return true;
    }
    fail("the end of a raw block, {% endraw %}, is missing");
  }

  void read_tag(bool is_variable) {
    std::vector<char> open;
    while (at_ < source_.size()) {
      const size_t end = end_of_tag(at_, is_variable ? "}}" : "%}", !is_variable);
      if (open.empty() && end != kNone) {
        return add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "", end);
      }
      const size_t spaces = skip_spaces(at_);
      if (spaces != at_) {
        move_to(spaces);
        continue;
      }
      if (read_number() || read_name() || read_string()) continue;
      read_operator(open);
    }
    fail(is_variable ? "the end of an expression, }}, is missing"
                     : "the end of a tag, %}, is missing");
  }

  // Digits that may be separated by single underscores; the end, or `at` when there are none.
  template <class IsDigit>
  size_t skip_digits(size_t at, const IsDigit& is_one) const {
    size_t end = at;
    while (end < source_.size() && is_one(source_[end])) {
      ++end;
      if (end + 1 < source_.size() && source_[end] == '_' && is_one(source_[end + 1])) ++end;
    }
    return end;
  }

  bool read_number() {
    if (!is_digit(source_[at_])) return false;
    size_t end = skip_digits(at_, is_digit);
    TokenKind kind = TokenKind::kInteger;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = skip_digits(end + 1, is_digit);
        kind = TokenKind::kFloat;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t power = end + 1;
        if (power < source_.size() && has_sign(source_[power])) ++power;
        if (power < source_.size() && is_digit(source_[power])) {
          end = skip_digits(power, is_digit);
          kind = TokenKind::kFloat;
        }
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    const bool is_zero = digits.find_first_not_of('0') == std::string::npos;
    if (kind == TokenKind::kInteger && digits[0] == '0' && !is_zero) {
      fail("an integer begins with 0: " + digits);
    }
    add(kind, std::move(digits), end);
    return true;
  }

  bool read_name() {
    size_t end = at_;
    while (end < source_.size()) {
      const uint32_t c = text::code_point_at(source_, end);
      if (c != '_' && !text::is_word(c)) break;
      end += text::utf8_length(source_[end]);
    }
    if (end == at_) return false;
    add(TokenKind::kName, std::string(source_.substr(at_, end - at_)), end);
    return true;
  }

  bool read_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("the end of a string is missing");
    add(TokenKind::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)), end + 1);
    return true;
  }

  // What Python's codec "unicode-escape" makes of a string.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\' || at + 1 == text.size()) {
        out += text[at];
        continue;
      }
      const char c = text[++at];
      static constexpr std::string_view kNames = "abfnrtv\\'\"";
      static constexpr std::string_view kBytes = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t named = kNames.find(c); named != kNone) {
        out += kBytes[named];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_escape(text.substr(at + 1, digits), digits, out);
        at += digits;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t k = 0;
        for (; k < 3 && at + k < text.size() && text[at + k] >= '0' && text[at + k] <= '7'; ++k) {
          code = code * 8 + static_cast<uint32_t>(text[at + k] - '0');
        }
        text::append_code_point(code, &out);
        at += k - 1;
      } else if (c == 'N') {
        fail("a string names a character by \\N (write the character itself)");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_escape(std::string_view digits, size_t wanted, std::string& out) const {
    uint32_t code = 0;
    for (const char c : digits) {
      if (hex_digit(c) < 0) fail("an escape in a string lacks digits");
      code = code * 16 + static_cast<uint32_t>(hex_digit(c));
    }
    if (digits.size() < wanted) fail("an escape in a string lacks digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail(fmt::format("U+{:04X} in a string is not a character (write the character itself)",
                       code));
    }
    text::append_code_point(code, &out);
  }

  void read_operator(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view pair : kPairs) {
      if (starts(pair)) return add(TokenKind::kOperator, std::string(pair), at_ + 2);
    }
    const char c = source_[at_];
    if (kSingle.find(c) == kNone) {
      const size_t length = text::utf8_length(c);
      fail(fmt::format("the character {} has no meaning here", source_.substr(at_, length)));
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(fmt::format("a '{}' closes nothing", c));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c), at_ + 1);
  }

  const std::string_view source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // the last tag ended with a newline
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view text) {
  std::string source;
  source.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\r') {
      source += '\n';
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else {
      source += text[at];
    }
  }
  if (source.ends_with('\n')) source.pop_back();
  return source;
}

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace strata::templates

// SPDX-License-Identifier: Apache-2.0
#include "engine/config/json_plain.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/config/utf8.h"

namespace strata::config {
namespace {

constexpr size_t kMembersMax = 64;  // each is compared with all before it
constexpr size_t kDigitsMax = 18;   // of an integer

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Whether all of eight characters stand for themselves in a string: no quote, backslash, control
// character, or part of a longer sequence of UTF-8.
bool are_plain(const char* at) {
  constexpr uint64_t kEveryByte = 0x0101010101010101u;
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  const auto below = [](uint64_t bytes, uint64_t limit) {
    return (bytes - kEveryByte * limit) & ~bytes;
  };
  const uint64_t special = word | below(word, 0x20) | below(word ^ kEveryByte * '"', 1) |
                           below(word ^ kEveryByte * '\\', 1);
  return (special & kEveryByte * 0x80) == 0;
}

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_character(uint32_t code_point, std::string& text) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { add(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xc0 | code_point >> 6);
    return tail(0);
  }
  if (code_point < 0x10000) {
    add(0xe0 | code_point >> 12);
  } else {
    add(0xf0 | code_point >> 18);
    tail(12);
  }
  tail(6);
  tail(0);
}

// Each function returns false where the library has to read the text.
class PlainReader {
 public:
  PlainReader(std::string_view text, const JsonLimits& limits)
      : at_(text.data()), end_(text.data() + text.size()), limits_(limits) {}

  bool read(Json& out) {
    if (!value(out, 0)) return false;
    skip_white();
    return at_ == end_;
  }

 private:
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  char next() const { return at_ == end_ ? '\0' : *at_; }

  void skip_white() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  // With the white space before it.
  bool takes(char c) {
    skip_white();
    if (next() != c) return false;
    ++at_;
    return true;
  }

  bool value(Json& out, int depth) {
    skip_white();
    if (++values_ > limits_.values) return false;
    switch (next()) {
      case '"': {
        std::string text;
        if (!string(text)) return false;
        out = Json(std::move(text));
        return true;
      }
      case '{':
        return object(out, depth + 1);
      case '[':
        return array(out, depth + 1);
      case 't':
        return word("true", Json(true), out);
      case 'f':
        return word("false", Json(false), out);
      case 'n':
        return word("null", Json(), out);
      default:
        return number(out);
    }
  }

  bool object(Json& out, int depth) {
    if (depth > limits_.depth) return false;
    ++at_;
    Json::Object members;
    if (!takes('}')) {
      do {
        if (members.size() == kMembersMax) return false;
        skip_white();
        JsonMember& member = members.emplace_back();
        if (!string(member.name) || is_repeated(members)) return false;
        if (!takes(':') || !value(member.value, depth)) return false;
      } while (takes(','));
      if (!takes('}')) return false;
    }
    out = Json(std::move(members));
    return true;
  }

  // Whether the last name is one of those before it.
  static bool is_repeated(const Json::Object& members) {
    const auto is_last = [&](const JsonMember& one) { return one.name == members.back().name; };
    return std::any_of(members.begin(), members.end() - 1, is_last);
  }

  bool array(Json& out, int depth) {
    if (depth > limits_.depth) return false;
    ++at_;
    Json::Array items;
    if (!takes(']')) {
      do {
        if (!value(items.emplace_back(), depth)) return false;
      } while (takes(','));
      if (!takes(']')) return false;
    }
    out = Json(std::move(items));
    return true;
  }

  bool word(std::string_view name, Json meaning, Json& out) {
    if (!rest().starts_with(name)) return false;
    at_ += name.size();
    out = std::move(meaning);
    return true;
  }

  bool string(std::string& text) {
    if (next() != '"') return false;
    const char* begin = ++at_;
    while (true) {
      while (end_ - at_ >= 8 && are_plain(at_)) at_ += 8;
      while (at_ != end_ && is_plain(*at_)) ++at_;
      if (next() == '"' || next() == '\\') {
        text.append(begin, at_);
        if (*at_++ == '"') return true;
        if (!escape(text)) return false;
        begin = at_;
        continue;
      }
      const bool is_ascii = (static_cast<unsigned char>(next()) & 0x80u) == 0;
      const size_t length = is_ascii ? 0 : utf8_length(rest());
      if (length == 0) return false;
      at_ += length;
    }
  }

  // What follows a backslash.
  bool escape(std::string& text) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char name = next();
    if (at_ == end_) return false;
    ++at_;
    if (name == 'u') return unicode_escape(text);
    const size_t known = kNames.find(name);
    if (known == std::string_view::npos) return false;
    text += kMeanings[known];
    return true;
  }

  bool unicode_escape(std::string& text) {
    uint32_t code_point = 0;
    if (!hex(code_point)) return false;
    if (code_point >= 0xdc00 && code_point < 0xe000) return false;
    if (code_point >= 0xd800 && code_point < 0xdc00) {
      uint32_t low = 0;
      if (!rest().starts_with("\\u")) return false;
      at_ += 2;
      if (!hex(low) || low < 0xdc00 || low >= 0xe000) return false;
      code_point = 0x10000 + (code_point - 0xd800) * 0x400 + (low - 0xdc00);
    }
    append_character(code_point, text);
    return true;
  }

  bool hex(uint32_t& value) {
    if (end_ - at_ < 4) return false;
    const auto [end, error] = std::from_chars(at_, at_ + 4, value, 16);
    if (error != std::errc() || end != at_ + 4) return false;
    at_ = end;
    return true;
  }

  size_t digits() {
    const char* begin = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return static_cast<size_t>(at_ - begin);
  }

  bool number(Json& out) {
    const char* begin = at_;
    const bool is_negative = next() == '-';
    if (is_negative) ++at_;
    const bool is_zero = next() == '0';
    const size_t count = digits();
    if (count == 0 || (is_zero && count > 1)) return false;
    if (next() != '.' && next() != 'e' && next() != 'E') {
      int64_t value = 0;
      if (count > kDigitsMax || (is_zero && is_negative)) return false;
      std::from_chars(begin, at_, value);
      out = Json(value);
      return true;
    }
    if (next() == '.') {
      ++at_;
      if (digits() == 0) return false;
    }
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      if (digits() == 0) return false;
    }
    double value = 0;
    if (std::from_chars(begin, at_, value).ec != std::errc()) return false;
    out = Json(value);
    return true;
  }

  const char* at_;
  const char* const end_;
  const JsonLimits& limits_;
  int64_t values_ = 0;
};

}  // namespace

std::optional<Json> read_plain_json(std::string_view text, const JsonLimits& limits) {
  Json value;
  if (!PlainReader(text, limits).read(value)) return std::nullopt;
  return value;
}

}  // namespace strata::config

// SPDX-License-Identifier: Apache-2.0
// Python's `format % arguments` and str.format().
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "engine/template/renderer.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

constexpr int64_t kWidthMax = 10'000;
constexpr int64_t kPrecisionMax = 100;

// How one value is written: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool has_prefix = false;
  char grouping = '\0';
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

[[noreturn]] void fail_format(const std::string& cause) {
  Renderer::fail("a format is wrong or not supported: " + cause);
}

class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  Spec read() {
    Spec spec;
    const size_t first = text_.empty() ? 0 : text::utf8_length(text_[0]);
    if (text_.size() > first && is_align(text_[first])) {
      spec.fill = text_.substr(0, first);
      spec.align = text_[first];
      at_ = first + 1;
    } else if (is_align(peek())) {
      spec.align = text_[at_++];
    }
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text_[at_++];
    spec.has_prefix = skip('#');
    if (skip('0') && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    spec.width = number(0);
    if (peek() == ',' || peek() == '_') spec.grouping = text_[at_++];
    if (skip('.')) spec.precision = number(-1);
    if (at_ < text_.size()) spec.type = text_[at_++];
    if (at_ != text_.size()) fail_format(std::string(text_));
    return spec;
  }

 private:
  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  int64_t number(int64_t otherwise) {
    int64_t value = otherwise;
    const auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (read.ec == std::errc::result_out_of_range) fail_format(std::string(text_));
    at_ = static_cast<size_t>(read.ptr - text_.data());
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::string grouped(const std::string& digits, char separator, size_t every) {
  const size_t end = std::min(digits.find_first_of(".e"), digits.size());
  std::string out;
  for (size_t k = 0; k < end; ++k) {
    if (k > 0 && (end - k) % every == 0) out += separator;
    out += digits[k];
  }
  return out + digits.substr(end);
}

std::string repeated(const std::string& text, int64_t count) {
  std::string out;
  for (int64_t k = 0; k < count; ++k) out += text;
  return out;
}

std::string padded(const Spec& spec, char otherwise, const std::string& sign,
                   const std::string& body) {
  if (spec.width > kWidthMax) fail_format(fmt::format("a width beyond {}", kWidthMax));
  const int64_t missing = spec.width - length_of(sign) - length_of(body);
  if (missing <= 0) return sign + body;
  const char align = spec.align == '\0' ? otherwise : spec.align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') return sign + repeated(spec.fill, missing) + body;
  return repeated(spec.fill, left) + sign + body + repeated(spec.fill, missing - left);
}

std::string sign_of(const Spec& spec, bool is_negative) {
  if (is_negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_integer(const Spec& spec, int64_t value) {
  const bool is_negative = value < 0;
  const uint64_t size =
      is_negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (spec.precision >= 0) fail_format("an integer with a precision");
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case '\0':
    case 'd':
      digits = fmt::format("{}", size);
      break;
    case 'x':
    case 'X':
      digits = spec.type == 'x' ? fmt::format("{:x}", size) : fmt::format("{:X}", size);
      prefix = spec.type == 'x' ? "0x" : "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", size);
      prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", size);
      prefix = "0b";
      break;
    default:
      fail_format(fmt::format("the type {} of an integer", spec.type));
  }
  if (spec.grouping != '\0') {
    const bool is_decimal = spec.type == '\0' || spec.type == 'd';
    digits = grouped(digits, spec.grouping, is_decimal ? 3 : 4);
    if (spec.align == '=') fail_format("an integer in groups, filled up with zeros");
  }
  return padded(spec, '>', sign_of(spec, is_negative) + (spec.has_prefix ? prefix : ""), digits);
}

std::string format_float(const Spec& spec, double value) {
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  double size = std::fabs(value);
  if (spec.precision > kPrecisionMax || spec.has_prefix) fail_format("a float");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string digits;
  switch (spec.type) {
    case '\0':
      if (spec.precision >= 0) fail_format("a float with a precision and no type");
      digits = repr(size);
      break;
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", size, precision);
      break;
    case 'e':
    case 'E':
      digits = spec.type == 'e' ? fmt::format("{:.{}e}", size, precision)
                                : fmt::format("{:.{}E}", size, precision);
      break;
    case 'g':
    case 'G':
      digits = spec.type == 'g' ? fmt::format("{:.{}g}", size, precision)
                                : fmt::format("{:.{}G}", size, precision);
      break;
    case '%':
      size *= 100;
      digits = fmt::format("{:.{}f}%", size, precision);
      break;
    default:
      fail_format(fmt::format("the type {} of a float", spec.type));
  }
  if (spec.grouping != '\0') {
    digits = grouped(digits, spec.grouping, 3);
    if (spec.align == '=') fail_format("a float in groups, filled up with zeros");
  }
  return padded(spec, '>', sign_of(spec, is_negative), digits);
}

std::string format_text(const Spec& spec, std::string_view text) {
  if (spec.type != '\0' && spec.type != 's') fail_format("the type of a text");
  if (spec.precision >= 0) text = text.substr(0, offset_of(text, spec.precision));
  return padded(spec, '<', "", std::string(text));
}

bool is_float_type(char type) {
  return type != '\0' && std::string_view("fFeEgG%").find(type) != std::string_view::npos;
}

// `arguments` of the operator %.
class Percent {
 public:
  Percent(Renderer& renderer, std::string_view format, const Value& arguments)
      : renderer_(renderer), format_(format), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) out += read_one();
      renderer_.require_room(out);
    }
    const bool is_tuple = arguments_.is_sequence(SequenceKind::kTuple);
    const size_t given = is_tuple ? arguments_.sequence->size : 1;
    if (!arguments_.is_dict() && used_ < given) fail_format("it has fewer places than values");
    return out;
  }

 private:
  char next() {
    if (at_ >= format_.size()) fail_format("it ends within a place");
    return format_[at_++];
  }

  Value next_value() {
    if (arguments_.is_sequence(SequenceKind::kTuple)) {
      if (used_ < arguments_.sequence->size) return arguments_.sequence->items[used_++];
    } else if (used_++ == 0) {
      return arguments_;
    }
    fail_format("it has more places than values");
  }

  int64_t number() {
    int64_t value = 0;
    const auto read = std::from_chars(format_.data() + at_, format_.data() + format_.size(), value);
    if (read.ec == std::errc::result_out_of_range) fail_format("a width");
    at_ = static_cast<size_t>(read.ptr - format_.data());
    return value;
  }

  std::string read_one() {
    std::optional<Value> named;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t end = format_.find(')', at_);
      if (end == std::string_view::npos || !arguments_.is_dict()) fail_format("a name of a place");
      const Value* found = find(*arguments_.dict, format_.substr(at_ + 1, end - at_ - 1));
      if (found == nullptr) fail_format("no value has the name of a place");
      named = *found;
      at_ = end + 1;
    }
    Spec spec;
    bool is_left = false;
    bool is_zero = false;
    char c = next();
    for (; std::string_view("-+ #0").find(c) != std::string_view::npos; c = next()) {
      is_left = is_left || c == '-';
      is_zero = is_zero || c == '0';
      spec.has_prefix = spec.has_prefix || c == '#';
      if (c == '+' || (c == ' ' && spec.sign == '-')) spec.sign = c;
    }
    --at_;
    spec.width = number();
    c = next();
    if (c == '.') {
      spec.precision = number();
      c = next();
    }
    spec.align = is_left ? '<' : '>';
    if (c == '%') return "%";
    const Value value = named ? *named : next_value();
    if (c == 's' || c == 'r') {
      return format_text(spec, c == 's' ? renderer_.text_of(value) : renderer_.repr_of(value));
    }
    if (is_zero && !is_left) {
      spec.fill = "0";
      spec.align = '=';
    }
    if (!value.is_numeric())
      fail_format(fmt::format("a {} in the place of a number", type_of(value)));
    if (is_float_type(c) && c != '%') {
      spec.type = c;
      return format_float(spec, value.as_number());
    }
    spec.type = c == 'i' || c == 'u' ? 'd' : c;
    if (value.kind != Kind::kFloat) return format_integer(spec, value.as_integer());
    if (spec.type != 'd' || !(std::fabs(value.number) < 9.2e18)) fail_format("a float as integer");
    return format_integer(spec, static_cast<int64_t>(value.number));
  }

  Renderer& renderer_;
  const std::string_view format_;
  const Value arguments_;
  size_t at_ = 0;
  size_t used_ = 0;
};

// The fields of str.format().
class Braces {
 public:
  Braces(Renderer& renderer, std::string_view format, const Arguments& arguments)
      : renderer_(renderer), format_(format), arguments_(arguments) {}

  std::string run() {
    std::string out;
    for (size_t at = 0; at < format_.size(); ++at) {
      const char c = format_[at];
      const bool is_doubled = at + 1 < format_.size() && format_[at + 1] == c;
      if ((c == '{' || c == '}') && is_doubled) {
        out += c;
        ++at;
      } else if (c == '{') {
        const size_t end = format_.find('}', at);
        if (end == std::string_view::npos) fail_format("a { is not closed");
        out += read_field(format_.substr(at + 1, end - at - 1));
        at = end;
      } else if (c == '}') {
        fail_format("a } closes nothing");
      } else {
        out += c;
      }
      renderer_.require_room(out);
    }
    return out;
  }

 private:
  std::string read_field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    if (field.find('{') != std::string_view::npos) fail_format("a place within a place");
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) fail_format("a conversion");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    Value value = value_of(name);
    if (conversion == 'r') value = Value::of(renderer_.repr_of(value));
    if (conversion == 's') value = Value::of(renderer_.text_of(value));
    if (conversion != '\0' && conversion != 'r' && conversion != 's') fail_format("a conversion");
    const std::string_view given = field.substr(std::min(colon + 1, field.size()));
    if (given.empty()) return std::string(renderer_.text_of(value));
    const Spec spec = SpecReader(given).read();
    if (value.is_string()) return format_text(spec, value.string());
    if (value.kind == Kind::kFloat || (value.is_integral() && is_float_type(spec.type))) {
      return format_float(spec, value.as_number());
    }
    if (value.kind == Kind::kBool && spec.type == '\0') fail_format("a bool");
    if (value.is_integral()) return format_integer(spec, value.as_integer());
    fail_format(fmt::format("a {} with more than its name", type_of(value)));
  }

  Value value_of(std::string_view name) {
    if (name.find_first_of(".[") != std::string_view::npos) fail_format("a part of a value");
    size_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    if (name.empty() || (read.ec == std::errc() && read.ptr == name.data() + name.size())) {
      if (name.empty()) index = automatic_++;
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      fail_format("it has more places than values");
    }
    for (const auto& [known, value] : arguments_.keywords) {
      if (known == name) return value;
    }
    fail_format(fmt::format("no value has the name {}", name));
  }

  Renderer& renderer_;
  const std::string_view format_;
  const Arguments& arguments_;
  size_t automatic_ = 0;
};

void refuse_markup(const Value& format) {
  if (format.is_markup) fail_format("a text that is marked as safe");
}

}  // namespace

Value format_by_percent(Renderer& renderer, const Value& format, const Value& arguments) {
  refuse_markup(format);
  return renderer.string(Percent(renderer, format.string(), arguments).run());
}

Value format_by_braces(Renderer& renderer, const Value& format, const Arguments& arguments) {
  refuse_markup(format);
  return renderer.string(Braces(renderer, format.string(), arguments).run());
}

}  // namespace strata::templates

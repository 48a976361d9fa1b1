// SPDX-License-Identifier: Apache-2.0
// Filters of jinja2 that make text or numbers.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "engine/template/renderer.h"
#include "engine/text/text_case.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

// jinja2's soft_str(): Markup stays what it is.
Value soft_text(const Call& call) {
  return call.self.is_string() ? call.self : Value::of(call.renderer.text_of(call.self));
}

Value run_string(const Call& call) {
  return soft_text(call);
}

Value run_safe(const Call& call) {
  Value value = soft_text(call);
  value.is_markup = true;
  return value;
}

Value run_escape(const Call& call) {
  if (call.self.is_markup) return call.self;
  Value value = call.renderer.string(escape(call.renderer.text_of(call.self)));
  value.is_markup = true;
  return value;
}

template <std::string (*map)(std::string_view)>
Value run_case(const Call& call) {
  const Value text = soft_text(call);
  Value value = call.renderer.string(map(text.string()));
  value.is_markup = text.is_markup;
  return value;
}

// Words of this filter begin after white space, hyphens and opening brackets.
Value run_title(const Call& call) {
  const Value value = soft_text(call);
  const std::string_view text = value.string();
  std::string out;
  std::string_view rest = text;
  const auto separates = [&](size_t at) {
    const uint32_t c = text::code_point_at(rest, at);
    return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  while (!rest.empty()) {
    const size_t first = text::utf8_length(rest[0]);
    if (separates(0)) {
      out += rest.substr(0, first);
      rest.remove_prefix(first);
      continue;
    }
    size_t end = first;
    while (end < rest.size() && !separates(end)) end += text::utf8_length(rest[end]);
    out += text::to_upper_full(rest.substr(0, first));
    out += text::to_lower_full(rest.substr(first, end - first));
    rest.remove_prefix(end);
  }
  return call.renderer.string(out);
}

Value run_trim(const Call& call) {
  const Value text = soft_text(call);
  std::string_view trimmed;
  if (!call.has(0) || call.given[0].is_none()) {
    trimmed = strip(text.string(), Side::kBoth);
  } else if (call.given[0].is_string()) {
    call.renderer.charge(size_t{text.size} * (1 + call.given[0].size / 16) / 64);
    trimmed = strip(text.string(), Side::kBoth, call.given[0].string());
  } else {
    Renderer::fail(fmt::format("trim gets a {}, not a string", type_of(call.given[0])));
  }
  Value value = Value::of(trimmed);
  value.is_markup = text.is_markup;
  return value;
}

Value run_replace(const Call& call) {
  const bool has_count = call.has(2) && !call.given[2].is_none();
  const int64_t most = has_count ? call.renderer.integer_of(call.given[2], "a count") : -1;
  const Value text = Value::of(call.renderer.text_of(call.self));
  return call.renderer.replaced(text, call.renderer.text_of(call.given[0]),
                                call.renderer.text_of(call.given[1]), most);
}

Value run_indent(const Call& call) {
  Renderer& renderer = call.renderer;
  const Value text = soft_text(call);
  const Value width = call.has(0) ? call.given[0] : Value::of(int64_t{4});
  const Value indentation =
      width.is_string() ? width : renderer.multiply(Value::of(std::string_view(" ")), width);
  const bool indents_first = call.has(1) && is_true(call.given[1]);
  const bool indents_blank = call.has(2) && is_true(call.given[2]);
  // The filter adds a newline before it cuts lines, so a text that ends with one keeps it.
  const std::string whole = std::string(text.string()) + "\n";
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(whole, false)) {
    if (!is_first) out += '\n';
    if (is_first ? indents_first : indents_blank || !line.empty()) out += indentation.string();
    out += line;
    is_first = false;
    renderer.require_room(out);
  }
  Value value = renderer.string(out);
  value.is_markup = text.is_markup;
  return value;
}

Value run_tojson(const Call& call) {
  JsonStyle style;
  style.ensures_ascii = call.has(0) && is_true(call.given[0]);
  const Value indent = call.has(1) ? call.given[1] : Value::none();
  style.has_indent = !indent.is_none();
  if (indent.is_string()) {
    style.indent = indent.string();
  } else if (style.has_indent) {
    style.indent = call.renderer.multiply(Value::of(std::string_view(" ")), indent).string();
  }
  if (style.has_indent) style.item_separator = ",";
  if (call.has(2) && !call.given[2].is_none()) {
    const Items separators = call.renderer.items_of(call.given[2]);
    if (separators.size != 2 || !separators.items[0].is_string() ||
        !separators.items[1].is_string()) {
      Renderer::fail("the separators of tojson are not two strings");
    }
    style.item_separator = separators.items[0].string();
    style.name_separator = separators.items[1].string();
  }
  style.sorts_names = call.has(3) && is_true(call.given[3]);
  return Value::of(call.renderer.json_of(call.self, style));
}

// Python's int(text, base) and float(text); nullopt for what they refuse.
std::optional<int64_t> read_integer(std::string_view text, int64_t base) {
  text = strip(text, Side::kBoth);
  std::string digits;
  for (size_t k = 0; k < text.size(); ++k) {
    const bool is_between = k > 0 && k + 1 < text.size() && text[k - 1] != '_';
    if (text[k] == '_' && is_between) continue;
    digits += text[k];
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.starts_with("+") || digits.empty() || base < 2 || base > 36) return std::nullopt;
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, static_cast<int>(base));
  if (read.ec == std::errc::result_out_of_range && read.ptr == end) {
    Renderer::fail("the integer has more than 64 bits");
  }
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> read_float(std::string_view text) {
  text = strip(text, Side::kBoth);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ptr != text.data() + text.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) return std::nullopt;
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

Value integer_of_float(double number, const Value& otherwise) {
  if (!std::isfinite(number)) return otherwise;
  if (std::fabs(number) >= 9.2e18) Renderer::fail("the integer has more than 64 bits");
  return Value::of(static_cast<int64_t>(number));
}

Value run_int(const Call& call) {
  const Value otherwise = call.has(0) ? call.given[0] : Value::of(int64_t{0});
  const int64_t base = call.has(1) ? call.renderer.integer_of(call.given[1], "the base") : 10;
  if (call.self.is_undefined()) {
    Renderer::fail(fmt::format("{} is undefined", call.self.string()));
  }
  if (call.self.is_integral()) return Value::of(call.self.as_integer());
  if (call.self.kind == Kind::kFloat) return integer_of_float(call.self.number, otherwise);
  if (!call.self.is_string()) return otherwise;
  if (const auto integer = read_integer(call.self.string(), base)) return Value::of(*integer);
  const auto number = read_float(call.self.string());
  return number ? integer_of_float(*number, otherwise) : otherwise;
}

Value run_float(const Call& call) {
  if (call.self.is_undefined()) {
    Renderer::fail(fmt::format("{} is undefined", call.self.string()));
  }
  if (call.self.is_numeric()) return Value::of(call.self.as_number());
  const auto number = call.self.is_string() ? read_float(call.self.string()) : std::nullopt;
  return number ? Value::of(*number) : call.has(0) ? call.given[0] : Value::of(0.0);
}

Value run_abs(const Call& call) {
  if (call.self.kind == Kind::kFloat) return Value::of(std::fabs(call.self.number));
  const int64_t value = call.renderer.integer_of(call.self, "what abs gets");
  return value < 0 ? call.renderer.negate(Value::of(value)) : Value::of(value);
}

Value run_round(const Call& call) {
  const int64_t digits = call.has(0) ? call.renderer.integer_of(call.given[0], "the precision") : 0;
  const std::string method(call.has(1) ? call.renderer.text_of(call.given[1]) : "common");
  const bool is_common = method == "common";
  if (!is_common && method != "floor" && method != "ceil") {
    Renderer::fail("the method of round must be common, ceil or floor");
  }
  if (!call.self.is_numeric() || digits < 0 || digits > 17) {
    Renderer::fail("only round(0 to 17) of a number is supported");
  }
  if (!is_common) {
    const double factor = std::pow(10.0, static_cast<double>(digits));
    const double scaled = call.self.as_number() * factor;
    return Value::of((method == "floor" ? std::floor(scaled) : std::ceil(scaled)) / factor);
  }
  if (call.self.is_integral()) return Value::of(call.self.as_integer());
  if (!std::isfinite(call.self.number)) return call.self;
  // The nearest decimal, ties to even by the exact value, as Python rounds.
  const std::string rounded = fmt::format("{:.{}f}", call.self.number, digits);
  return Value::of(std::strtod(rounded.c_str(), nullptr));
}

Value run_format(const Call& call) {
  const Value format = soft_text(call);
  if (!call.all.keywords.empty()) {
    std::vector<Entry> entries;
    for (const auto& [name, value] : call.all.keywords) entries.push_back({Value::of(name), value});
    return format_by_percent(call.renderer, format, call.renderer.heap().dict(entries));
  }
  return format_by_percent(
      call.renderer, format,
      call.renderer.heap().sequence(SequenceKind::kTuple, call.all.positional));
}

// The start of a text with `end` behind it; a text that is only a little longer stays whole.
Value run_truncate(const Call& call) {
  const auto number = [&](size_t k, int64_t otherwise) {
    const bool is_given = call.has(k) && !call.given[k].is_none();
    return is_given ? call.renderer.integer_of(call.given[k], "a length of truncate") : otherwise;
  };
  const int64_t length = call.has(0) && call.given[0].is_none() ? -1 : number(0, 255);
  const int64_t leeway = number(3, 5);
  const Value end = call.has(2) ? call.given[2] : Value::of(std::string_view("..."));
  if (call.self.is_undefined()) return call.self;
  if (!call.self.is_string() || !end.is_string()) Renderer::fail("truncate needs strings");
  const std::string_view text = call.self.string();
  const int64_t kept = length - length_of(end.string());
  if (kept < 0 || leeway < 0) Renderer::fail("truncate has no room for its end");
  const int64_t all = length_of(text);
  if (all <= length || all - length <= leeway) return call.self;
  std::string_view start = text.substr(0, offset_of(text, kept));
  const bool cuts_words = call.has(1) && is_true(call.given[1]);
  if (!cuts_words) start = start.substr(0, start.rfind(' '));
  return call.renderer.string(std::string(start) + std::string(end.string()));
}

constexpr Native kTextFilters[] = {
    {"abs", "", run_abs},
    {"capitalize", "", run_case<text::capitalize>},
    {"e", "", run_escape},
    {"escape", "", run_escape},
    {"float", "default?", run_float},
    {"format", "*", run_format},
    {"indent", "width? first? blank?", run_indent},
    {"int", "default? base?", run_int},
    {"lower", "", run_case<text::to_lower_full>},
    {"replace", "old new count?", run_replace},
    {"round", "precision? method?", run_round},
    {"safe", "", run_safe},
    {"string", "", run_string},
    {"title", "", run_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", run_tojson},
    {"trim", "chars?", run_trim},
    {"truncate", "length? killwords? end? leeway?", run_truncate},
    {"upper", "", run_case<text::to_upper_full>},
};

}  // namespace

NativeTable filters_of_text() {
  return {kTextFilters, std::size(kTextFilters)};
}

}  // namespace strata::templates

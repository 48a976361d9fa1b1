// SPDX-License-Identifier: Apache-2.0
// What Python's str(), repr() and json.dumps() write.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/template/python_text.h"
#include "engine/text/text_case.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

using text::code_point_at;
using text::utf8_length;

// Items between brackets, separated by ", ".
template <class WriteItem>
void write_items(size_t size, const char* open, const char* close, TextSink& out,
                 const WriteItem& write_item) {
  out.add(open);
  for (size_t k = 0; k < size; ++k) {
    if (k > 0) out.add(", ");
    write_item(k);
  }
  out.add(close);
}

void write_repr(const Sequence& sequence, TextSink& out) {
  const auto write_item = [&](size_t k) { write_repr(sequence.items[k], out); };
  switch (sequence.kind) {
    case SequenceKind::kList:
      return write_items(sequence.size, "[", "]", out, write_item);
    case SequenceKind::kTuple:
      return write_items(sequence.size, "(", sequence.size == 1 ? ",)" : ")", out, write_item);
    case SequenceKind::kKeys:
      return write_items(sequence.size, "dict_keys([", "])", out, write_item);
    case SequenceKind::kValues:
      return write_items(sequence.size, "dict_values([", "])", out, write_item);
    case SequenceKind::kItems:
      return write_items(sequence.size, "dict_items([", "])", out, write_item);
    case SequenceKind::kRange:
      throw NoText{"a range has no text here (write `| list` after it)"};
    case SequenceKind::kIterator:
      throw NoText{"the text of a generator is its address in Python (write `| list` after it)"};
  }
}

std::string unicode_escape(uint32_t c) {
  if (c < 0x10000) return fmt::format("\\u{:04x}", c);
  c -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
}

void write_json_string(std::string_view text, bool ensures_ascii, TextSink& out) {
  std::string result = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text[at]);
    const uint32_t c = code_point_at(text, at);
    static constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
    const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos) {
      result += '\\';
      result += "\"\\nrtfb"[named];
    } else if (c < 0x20 || (ensures_ascii && c >= 0x7F && c != 0x7F)) {
      result += unicode_escape(c);
    } else {
      result.append(text.substr(at, length));
    }
    at += length;
  }
  out.add(result += '"');
}

std::string json_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return repr(number);
}

// The name that json.dumps() makes of a key.
std::string json_name(const Value& key) {
  switch (key.kind) {
    case Kind::kString:
      return std::string(key.string());
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return key.boolean ? "true" : "false";
    case Kind::kInt:
      return std::to_string(key.integer);
    case Kind::kFloat:
      return json_number(key.number);
    default:
      throw NoText{fmt::format("JSON has no name for a key of type {}", type_of(key))};
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, TextSink& out) : style_(style), out_(out) {}

  void write(const Value& value, int level) {
    switch (value.kind) {
      case Kind::kNone:
        return out_.add("null");
      case Kind::kBool:
        return out_.add(value.boolean ? "true" : "false");
      case Kind::kInt:
        return out_.add(std::to_string(value.integer));
      case Kind::kFloat:
        return out_.add(json_number(value.number));
      case Kind::kString:
        return write_json_string(value.string(), style_.ensures_ascii, out_);
      case Kind::kDict:
        return write_dict(*value.dict, level);
      case Kind::kSequence:
        if (value.is_sequence(SequenceKind::kList) || value.is_sequence(SequenceKind::kTuple)) {
          const Sequence& list = *value.sequence;
          return write_all(list.size, "[", "]", level,
                           [&](size_t k) { write(list.items[k], level + 1); });
        }
        [[fallthrough]];
      default:
        throw NoText{fmt::format("JSON has no {}", type_of(value))};
    }
  }

 private:
  template <class WriteItem>
  void write_all(size_t size, const char* open, const char* close, int level,
                 const WriteItem& write_item) {
    out_.add(open);
    for (size_t k = 0; k < size; ++k) {
      if (k > 0) out_.add(style_.item_separator);
      break_line(level + 1);
      write_item(k);
    }
    if (size > 0) break_line(level);
    out_.add(close);
  }

  void break_line(int level) {
    if (!style_.has_indent) return;
    out_.add("\n");
    for (int k = 0; k < level; ++k) out_.add(style_.indent);
  }

  void write_dict(const Dict& dict, int level) {
    std::vector<const Entry*> entries;
    for (size_t k = 0; k < dict.size; ++k) entries.push_back(&dict.entries[k]);
    if (style_.sorts_names) {
      const bool are_names = std::all_of(entries.begin(), entries.end(),
                                         [](auto* one) { return one->key.is_string(); });
      if (!are_names) throw NoText{"only keys that are strings are sorted"};
      std::stable_sort(entries.begin(), entries.end(), [](const Entry* one, const Entry* other) {
        return one->key.string() < other->key.string();
      });
    }
    write_all(dict.size, "{", "}", level, [&](size_t k) {
      write_json_string(json_name(entries[k]->key), style_.ensures_ascii, out_);
      out_.add(style_.name_separator);
      write(entries[k]->value, level + 1);
    });
  }

  const JsonStyle& style_;
  TextSink& out_;
};

}  // namespace

std::string repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view written(buffer, static_cast<size_t>(end.ptr - buffer));
  // Python writes an exponent below 1e-4 and from 1e16 on.
  const size_t e = written.find('e');
  int exponent = 0;
  std::from_chars(written.data() + e + 1 + (written[e + 1] == '+'), end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(written);
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  std::string result(buffer, static_cast<size_t>(fixed.ptr - buffer));
  return result.find('.') == std::string::npos ? result + ".0" : result;
}

std::string repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text[at]);
    const uint32_t c = code_point_at(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (text::is_printable(c)) {
      out.append(text.substr(at, length));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
    at += length;
  }
  return out += quote;
}

void write_repr(const Value& value, TextSink& out) {
  switch (value.kind) {
    case Kind::kNone:
      return out.add("None");
    case Kind::kBool:
      return out.add(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out.add(std::to_string(value.integer));
    case Kind::kFloat:
      return out.add(repr(value.number));
    case Kind::kString:
      return out.add(value.is_markup ? "Markup(" + repr(value.string()) + ")"
                                     : repr(value.string()));
    case Kind::kSequence:
      return write_repr(*value.sequence, out);
    case Kind::kDict:
      return write_items(value.dict->size, "{", "}", out, [&](size_t k) {
        write_repr(value.dict->entries[k].key, out);
        out.add(": ");
        write_repr(value.dict->entries[k].value, out);
      });
    case Kind::kUndefined:
      return out.add("Undefined");
    default:
      throw NoText{fmt::format("the text of a {} is its address in Python", type_of(value))};
  }
}

void write_text(const Value& value, TextSink& out) {
  if (value.is_string()) return out.add(value.string());
  if (!value.is_undefined()) write_repr(value, out);
}

void write_json(const Value& value, const JsonStyle& style, TextSink& out) {
  JsonWriter(style, out).write(value, 0);
}

}  // namespace strata::templates

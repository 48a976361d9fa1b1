// SPDX-License-Identifier: Apache-2.0
// Methods of Python's strings, dicts, lists and loops.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "engine/template/renderer.h"
#include "engine/text/text_case.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

std::string_view text_argument(const Call& call, size_t k, const char* method) {
  if (call.given[k].is_string()) return call.given[k].string();
  Renderer::fail(fmt::format("{} gets a {}, not a string", method, type_of(call.given[k])));
}

int64_t count_argument(const Call& call, size_t k, int64_t otherwise) {
  return call.has(k) ? call.renderer.integer_of(call.given[k], "a count") : otherwise;
}

// Methods of Markup return Markup.
Value like_self(const Call& call, Value value) {
  value.is_markup = call.self.is_markup;
  return value;
}
Value view(const Call& call, std::string_view text) {
  return like_self(call, Value::of(text));
}
Value made(const Call& call, const std::string& text) {
  return like_self(call, call.renderer.string(text));
}

Value views(const Call& call, SequenceKind kind, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(view(call, part));
  call.renderer.charge(items.size() / 4);
  return call.renderer.heap().sequence(kind, items);
}

template <Side side>
Value call_strip(const Call& call) {
  const std::string_view text = call.self.string();
  if (!call.has(0) || call.given[0].is_none()) return view(call, strip(text, side));
  const std::string_view characters = text_argument(call, 0, "strip");
  call.renderer.charge(text.size() * (1 + characters.size() / 16) / 64);
  return view(call, strip(text, side, characters));
}

template <bool from_right>
Value call_split(const Call& call) {
  const std::string_view text = call.self.string();
  const int64_t most = count_argument(call, 1, -1);
  if (!call.has(0) || call.given[0].is_none()) {
    return views(call, SequenceKind::kList,
                 from_right ? rsplit_spaces(text, most) : split_spaces(text, most));
  }
  const std::string_view separator = text_argument(call, 0, "split");
  if (separator.empty()) Renderer::fail("split gets an empty separator");
  return views(call, SequenceKind::kList,
               from_right ? rsplit(text, separator, most) : split(text, separator, most));
}

Value call_splitlines(const Call& call) {
  return views(call, SequenceKind::kList,
               split_lines(call.self.string(), call.has(0) && is_true(call.given[0])));
}

template <bool from_right>
Value call_partition(const Call& call) {
  const std::string_view text = call.self.string();
  const std::string_view separator = text_argument(call, 0, "partition");
  if (separator.empty()) Renderer::fail("partition gets an empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string_view::npos) {
    if (from_right) return views(call, SequenceKind::kTuple, {"", "", text});
    return views(call, SequenceKind::kTuple, {text, "", ""});
  }
  return views(call, SequenceKind::kTuple,
               {text.substr(0, at), separator, text.substr(at + separator.size())});
}

// The part of a text that the arguments `k` and `k + 1` bound.
std::string_view bounded(const Call& call, size_t k) {
  if (!call.has(k)) return call.self.string();
  const Value end = call.has(k + 1) ? call.given[k + 1] : Value::none();
  return call.renderer.slice(call.self, call.given[k], end, Value::none()).string();
}

template <bool at_end>
Value call_starts(const Call& call) {
  const std::string_view text = bounded(call, 1);
  const auto fits = [&](const Value& part) {
    if (!part.is_string()) {
      Renderer::fail(fmt::format("a text cannot begin or end with a {}", type_of(part)));
    }
    return at_end ? text.ends_with(part.string()) : text.starts_with(part.string());
  };
  if (!call.given[0].is_sequence(SequenceKind::kTuple)) return Value::of(fits(call.given[0]));
  const Items parts = call.renderer.items_of(call.given[0]);
  return Value::of(std::any_of(parts.items, parts.items + parts.size, fits));
}

template <bool from_right, bool must_exist>
Value call_find(const Call& call) {
  const std::string_view text = bounded(call, 1);
  const std::string_view wanted = text_argument(call, 0, "find");
  const size_t at = from_right ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string_view::npos) {
    if (must_exist) Renderer::fail("the part is not in the text");
    return Value::of(int64_t{-1});
  }
  const auto before = static_cast<size_t>(text.data() - call.self.text) + at;
  return Value::of(length_of(call.self.string().substr(0, before)));
}

Value call_count(const Call& call) {
  const std::string_view text = bounded(call, 1);
  const std::string_view wanted = text_argument(call, 0, "count");
  if (wanted.empty()) return Value::of(length_of(text) + 1);
  return Value::of(static_cast<int64_t>(split(text, wanted, -1).size()) - 1);
}

Value call_replace(const Call& call) {
  const std::string_view from = text_argument(call, 0, "replace");
  const std::string_view to = text_argument(call, 1, "replace");
  const bool escapes = call.self.is_markup && !call.given[1].is_markup;
  const int64_t most = count_argument(call, 2, -1);
  return call.renderer.replaced(call.self, from, escapes ? escape(to) : std::string(to), most);
}

template <std::string (*map)(std::string_view)>
Value call_case(const Call& call) {
  return made(call, map(call.self.string()));
}

Value call_join(const Call& call) {
  const Items items = call.renderer.items_of(call.given[0]);
  std::string text;
  for (size_t k = 0; k < items.size; ++k) {
    const Value& item = items.items[k];
    if (!item.is_string()) {
      Renderer::fail(fmt::format("join gets a {}, not a string", type_of(item)));
    }
    if (k > 0) text += call.self.string();
    text += call.self.is_markup && !item.is_markup ? escape(item.string()) : item.string();
    call.renderer.require_room(text);
  }
  return made(call, text);
}

template <bool at_end>
Value call_remove(const Call& call) {
  std::string_view text = call.self.string();
  const std::string_view part = text_argument(call, 0, "removeprefix");
  if (at_end && text.ends_with(part)) text.remove_suffix(part.size());
  if (!at_end && text.starts_with(part)) text.remove_prefix(part.size());
  return view(call, text);
}

template <Side side>
Value call_pad(const Call& call) {
  const std::string_view text = call.self.string();
  const int64_t missing = count_argument(call, 0, 0) - length_of(text);
  if (missing <= 0) return call.self;
  const Value fill = call.has(1) ? call.given[1] : Value::of(std::string_view(" "));
  if (!fill.is_string() || length_of(fill.string()) != 1) Renderer::fail("a filler is a character");
  const Value padding = call.renderer.multiply(fill, Value::of(missing));
  return like_self(call, side == Side::kLeft ? call.renderer.add(padding, call.self)
                                             : call.renderer.add(call.self, padding));
}

Value call_zfill(const Call& call) {
  const std::string_view text = call.self.string();
  const int64_t missing = count_argument(call, 0, 0) - length_of(text);
  if (missing <= 0) return call.self;
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const Value zeros = call.renderer.multiply(Value::of(std::string_view("0")), Value::of(missing));
  return made(call, fmt::format("{}{}{}", text.substr(0, sign), zeros.string(), text.substr(sign)));
}

// Whether the text is not empty and all of its characters are of a kind.
template <bool (*is_one)(uint32_t)>
Value call_all_are(const Call& call) {
  const std::string_view text = call.self.string();
  bool all = !text.empty();
  for (size_t at = 0; all && at < text.size(); at += text::utf8_length(text[at])) {
    all = is_one(text::code_point_at(text, at));
  }
  return Value::of(all);
}
bool is_alphanumeric(uint32_t c) {
  return text::is_letter(c) || text::is_decimal_digit(c);
}

Value call_islower(const Call& call) {
  return Value::of(has_only_case(call.self.string(), text::is_lower_case, text::is_upper_case));
}
Value call_isupper(const Call& call) {
  return Value::of(has_only_case(call.self.string(), text::is_upper_case, text::is_lower_case));
}

Value call_format(const Call& call) {
  return format_by_braces(call.renderer, call.self, call.all);
}

constexpr Native kTextMethods[] = {
    {"capitalize", "", call_case<text::capitalize>},
    {"casefold", "", nullptr},
    {"center", "", nullptr},
    {"count", "/ sub start? end?", call_count},
    {"encode", "", nullptr},
    {"endswith", "/ suffix start? end?", call_starts<true>},
    {"expandtabs", "", nullptr},
    {"find", "/ sub start? end?", call_find<false, false>},
    {"format", "*", call_format},
    {"format_map", "", nullptr},
    {"index", "/ sub start? end?", call_find<false, true>},
    {"isalnum", "", call_all_are<is_alphanumeric>},
    {"isalpha", "", call_all_are<text::is_letter>},
    {"isascii", "", nullptr},
    {"isdecimal", "", call_all_are<text::is_decimal_digit>},
    {"isdigit", "", call_all_are<text::is_decimal_digit>},
    {"isidentifier", "", nullptr},
    {"islower", "", call_islower},
    {"isnumeric", "", call_all_are<text::is_decimal_digit>},
    {"isprintable", "", nullptr},
    {"isspace", "", call_all_are<is_python_space>},
    {"istitle", "", nullptr},
    {"isupper", "", call_isupper},
    {"join", "/ iterable", call_join},
    {"ljust", "/ width fillchar?", call_pad<Side::kRight>},
    {"lower", "", call_case<text::to_lower_full>},
    {"lstrip", "/ chars?", call_strip<Side::kLeft>},
    {"maketrans", "", nullptr},
    {"partition", "/ sep", call_partition<false>},
    {"removeprefix", "/ prefix", call_remove<false>},
    {"removesuffix", "/ suffix", call_remove<true>},
    {"replace", "/ old new count?", call_replace},
    {"rfind", "/ sub start? end?", call_find<true, false>},
    {"rindex", "/ sub start? end?", call_find<true, true>},
    {"rjust", "/ width fillchar?", call_pad<Side::kLeft>},
    {"rpartition", "/ sep", call_partition<true>},
    {"rsplit", "sep? maxsplit?", call_split<true>},
    {"rstrip", "/ chars?", call_strip<Side::kRight>},
    {"split", "sep? maxsplit?", call_split<false>},
    {"splitlines", "keepends?", call_splitlines},
    {"startswith", "/ prefix start? end?", call_starts<false>},
    {"strip", "/ chars?", call_strip<Side::kBoth>},
    {"swapcase", "", nullptr},
    {"title", "", call_case<text::to_title_full>},
    {"translate", "", nullptr},
    {"upper", "", call_case<text::to_upper_full>},
    {"zfill", "/ width", call_zfill},
};

Value call_get(const Call& call) {
  Renderer::require_hashable(call.given[0]);
  call.renderer.charge(call.self.dict->size / 16);
  if (const Value* value = find(*call.self.dict, call.given[0])) return *value;
  return call.has(1) ? call.given[1] : Value::none();
}

template <SequenceKind kind>
Value call_entries(const Call& call) {
  std::vector<Value> items;
  const Dict& dict = *call.self.dict;
  items.reserve(dict.size);
  call.renderer.charge(dict.size / 4);
  for (size_t k = 0; k < dict.size; ++k) {
    const Entry& entry = dict.entries[k];
    items.push_back(kind == SequenceKind::kKeys     ? entry.key
                    : kind == SequenceKind::kValues ? entry.value
                                                    : call.renderer.pair(entry));
  }
  return call.renderer.heap().sequence(kind, items);
}

Value call_copy(const Call& call) {
  return call.self;  // nothing changes it
}

constexpr Native kDictMethods[] = {
    {"copy", "", call_copy},
    {"fromkeys", "", nullptr},
    {"get", "/ key default?", call_get},
    {"items", "", call_entries<SequenceKind::kItems>},
    {"keys", "", call_entries<SequenceKind::kKeys>},
    {"values", "", call_entries<SequenceKind::kValues>},
};

Value call_count_items(const Call& call) {
  int64_t count = 0;
  const Sequence& list = *call.self.sequence;
  for (size_t k = 0; k < list.size; ++k) count += call.renderer.equal(list.items[k], call.given[0]);
  return Value::of(count);
}

Value call_index(const Call& call) {
  const Sequence& list = *call.self.sequence;
  for (size_t k = 0; k < list.size; ++k) {
    if (call.renderer.equal(list.items[k], call.given[0])) {
      return Value::of(static_cast<int64_t>(k));
    }
  }
  Renderer::fail("the value is not in the list");
}

constexpr Native kListMethods[] = {
    {"copy", "", call_copy},
    {"count", "/ value", call_count_items},
    {"index", "/ value", call_index},
};

Value call_cycle(const Call& call) {
  const std::vector<Value>& values = call.all.positional;
  if (values.empty()) Renderer::fail("cycle gets no values");
  return values[call.self.loop->index % values.size()];
}

constexpr Native kLoopMethods[] = {{"changed", "", nullptr}, {"cycle", "*", call_cycle}};

using Table = std::unordered_map<std::string_view, const Native*>;

template <size_t size>
Table table_of(const Native (&natives)[size]) {
  Table table;
  for (const Native& native : natives) table.emplace(native.name, &native);
  return table;
}

const Native* find(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

const Native* find_method(const Value& object, std::string_view name) {
  static const Table text_methods = table_of(kTextMethods);
  static const Table dict_methods = table_of(kDictMethods);
  static const Table list_methods = table_of(kListMethods);
  static const Table loop_methods = table_of(kLoopMethods);
  switch (object.kind) {
    case Kind::kString:
      return find(text_methods, name);
    case Kind::kDict:
      return find(dict_methods, name);
    case Kind::kLoop:
      return find(loop_methods, name);
    case Kind::kSequence:
      if (object.is_sequence(SequenceKind::kList)) return find(list_methods, name);
      if (object.is_sequence(SequenceKind::kTuple) || object.is_sequence(SequenceKind::kRange)) {
        return name == "copy" ? nullptr : find(list_methods, name);
      }
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace strata::templates

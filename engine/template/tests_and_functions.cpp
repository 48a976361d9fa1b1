// SPDX-License-Identifier: Apache-2.0
// Tests of jinja2 (`x is string`) and the functions that every template can call.
#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "engine/template/renderer.h"
#include "engine/text/text_case.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

template <Kind kind>
Value run_is_kind(const Call& call) {
  return Value::of(call.self.kind == kind);
}
template <Kind kind>
Value run_is_not_kind(const Call& call) {
  return Value::of(call.self.kind != kind);
}
template <bool wanted>
Value run_is_bool(const Call& call) {
  return Value::of(call.self.kind == Kind::kBool && call.self.boolean == wanted);
}
Value run_number(const Call& call) {
  return Value::of(call.self.is_numeric());
}
Value run_callable(const Call& call) {
  return Value::of(call.self.kind == Kind::kFunction || call.self.is_undefined() ||
                   call.self.kind == Kind::kLoop);
}
Value run_iterable(const Call& call) {
  const Kind kind = call.self.kind;
  return Value::of(kind == Kind::kUndefined || kind == Kind::kString || kind == Kind::kSequence ||
                   kind == Kind::kDict || kind == Kind::kLoop);
}
// Python's test asks for a length and for items by index.
Value run_sequence(const Call& call) {
  const Value& value = call.self;
  if (value.kind == Kind::kSequence) {
    return Value::of(value.is_sequence(SequenceKind::kList) ||
                     value.is_sequence(SequenceKind::kTuple) ||
                     value.is_sequence(SequenceKind::kRange));
  }
  return Value::of(value.is_undefined() || value.is_string() || value.is_dict());
}
Value run_escaped(const Call& call) {
  return Value::of(call.self.is_markup);
}
template <bool (*is_wanted)(uint32_t), bool (*is_other)(uint32_t)>
Value test_case(const Call& call) {
  return Value::of(has_only_case(call.renderer.text_of(call.self), is_wanted, is_other));
}
template <int64_t rest>
Value run_parity(const Call& call) {
  const Value two = Value::of(int64_t{2});
  return Value::of(is_equal(call.renderer.arithmetic(call.self, "%", two), Value::of(rest)));
}
Value run_divisible(const Call& call) {
  const Value rest = call.renderer.arithmetic(call.self, "%", call.given[0]);
  return Value::of(is_equal(rest, Value::of(int64_t{0})));
}
template <char first, char second>
Value run_compare(const Call& call) {
  constexpr char kName[] = {first, second, '\0'};
  return Value::of(call.renderer.compare(call.self, kName, call.given[0]));
}
Value run_in(const Call& call) {
  return Value::of(call.renderer.contains(call.given[0], call.self));
}
Value run_same(const Call& call) {
  const Value& one = call.self;
  const Value& other = call.given[0];
  if (one.kind != other.kind) return Value::of(false);
  if (one.is_string()) return Value::of(one.text == other.text && one.size == other.size);
  if (one.kind == Kind::kDict) return Value::of(one.dict == other.dict);
  if (one.kind == Kind::kSequence) return Value::of(one.sequence == other.sequence);
  return Value::of(is_equal(one, other));
}
Value run_is_filter(const Call& call) {
  return Value::of(find_filter(call.renderer.text_of(call.self)) != nullptr);
}
Value run_is_test(const Call& call) {
  return Value::of(find_test(call.renderer.text_of(call.self)) != nullptr);
}

constexpr auto kLess = run_compare<'<', '\0'>;
constexpr auto kGreater = run_compare<'>', '\0'>;
constexpr auto kEqual = run_compare<'=', '='>;
constexpr auto kUnequal = run_compare<'!', '='>;

constexpr Native kTests[] = {
    {"!=", "other", kUnequal},
    {"<", "other", kLess},
    {"<=", "other", run_compare<'<', '='>},
    {"==", "other", kEqual},
    {">", "other", kGreater},
    {">=", "other", run_compare<'>', '='>},
    {"boolean", "", run_is_kind<Kind::kBool>},
    {"callable", "", run_callable},
    {"defined", "", run_is_not_kind<Kind::kUndefined>},
    {"divisibleby", "num", run_divisible},
    {"eq", "other", kEqual},
    {"equalto", "other", kEqual},
    {"escaped", "", run_escaped},
    {"even", "", run_parity<0>},
    {"false", "", run_is_bool<false>},
    {"filter", "", run_is_filter},
    {"float", "", run_is_kind<Kind::kFloat>},
    {"ge", "other", run_compare<'>', '='>},
    {"greaterthan", "other", kGreater},
    {"gt", "other", kGreater},
    {"in", "seq", run_in},
    {"integer", "", run_is_kind<Kind::kInt>},
    {"iterable", "", run_iterable},
    {"le", "other", run_compare<'<', '='>},
    {"lessthan", "other", kLess},
    {"lower", "", test_case<text::is_lower_case, text::is_upper_case>},
    {"lt", "other", kLess},
    {"mapping", "", run_is_kind<Kind::kDict>},
    {"ne", "other", kUnequal},
    {"none", "", run_is_kind<Kind::kNone>},
    {"number", "", run_number},
    {"odd", "", run_parity<1>},
    {"sameas", "other", run_same},
    {"sequence", "", run_sequence},
    {"string", "", run_is_kind<Kind::kString>},
    {"test", "", run_is_test},
    {"true", "", run_is_bool<true>},
    {"undefined", "", run_is_kind<Kind::kUndefined>},
    {"upper", "", test_case<text::is_upper_case, text::is_lower_case>},
};

Value run_range(const Call& call) {
  constexpr int64_t kItemsMax = 100'000;  // of jinja2's sandbox
  int64_t bounds[3] = {0, 0, 1};
  for (size_t k = 0; k < 3 && call.has(k); ++k) {
    bounds[k] = call.renderer.integer_of(call.given[k], "a bound of range");
  }
  if (!call.has(1)) std::swap(bounds[0], bounds[1]);
  const auto [begin, end, step] = bounds;
  if (step == 0) Renderer::fail("the step of range is 0");
  std::vector<Value> items;
  int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (static_cast<int64_t>(items.size()) == kItemsMax) {
      Renderer::fail(fmt::format("a range has more than {} items", kItemsMax));
    }
    items.push_back(Value::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  call.renderer.charge(items.size() / 4);
  return call.renderer.heap().sequence(SequenceKind::kRange, items);
}

// The entries of dict(...) and namespace(...): of a dict or a list of pairs, and by name.
std::vector<Entry> entries_of(const Call& call) {
  std::vector<Entry> entries;
  if (call.all.positional.size() > 1) Renderer::fail("it takes one argument without a name");
  for (const Value& given : call.all.positional) {
    if (given.is_dict()) {
      entries.assign(given.dict->entries, given.dict->entries + given.dict->size);
      continue;
    }
    const Items pairs = call.renderer.items_of(given);
    for (size_t k = 0; k < pairs.size; ++k) {
      const Items pair = call.renderer.items_of(pairs.items[k]);
      if (pair.size != 2) Renderer::fail("a dict is made of pairs");
      Renderer::require_hashable(pair.items[0]);
      entries.push_back({pair.items[0], pair.items[1]});
    }
  }
  for (const auto& [name, value] : call.all.keywords) entries.push_back({Value::of(name), value});
  return entries;
}

Value run_dict(const Call& call) {
  const std::vector<Entry> entries = entries_of(call);
  call.renderer.charge(entries.size() * entries.size() / 8);
  return call.renderer.heap().dict(entries);
}

Value run_namespace(const Call& call) {
  const Value made = call.renderer.heap().name_space();
  for (const Entry& entry : entries_of(call)) {
    if (!entry.key.is_string()) Renderer::fail("a member of a namespace has no name");
    if (entry.key.string().starts_with('_')) {
      Renderer::fail("a member of a namespace begins with an underscore");
    }
    call.renderer.heap().charge(sizeof(entry));
    made.name_space->members.emplace_back(entry.key.string(), entry.value);
  }
  return made;
}

Value run_raise(const Call& call) {
  Renderer::fail(
      "the template refuses the chat: " + std::string(call.renderer.text_of(call.given[0])),
      "correct the chat, or choose another template");
}

Value run_strftime(const Call& call) {
  if (!call.given[0].is_string()) Renderer::fail("strftime_now gets no string");
  const TemplateDate& date = call.renderer.settings().date;
  std::tm time{};
  time.tm_year = date.year - 1900;
  time.tm_mon = date.month - 1;
  time.tm_mday = date.day;
  time.tm_hour = date.hour;
  time.tm_min = date.minute;
  time.tm_sec = date.second;
  timegm(&time);  // fills in the day of the week and of the year
  // Python's local time has no zone here, and it knows %f.
  std::string format;
  const std::string_view given = call.given[0].string();
  if (given.size() > 1000) Renderer::fail("the format of a date has more than 1000 bytes");
  for (size_t k = 0; k < given.size(); ++k) {
    const char next = k + 1 < given.size() ? given[k + 1] : ' ';
    if (given[k] != '%') {
      format += given[k];
    } else if (next == 'z' || next == 'Z' || next == 'f') {
      format += next == 'f' ? "000000" : "";
      ++k;
    } else {
      format += given[k];
      if (next == '%') format += given[++k];
    }
  }
  std::string text(format.size() * 32 + 256, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &time));
  return call.renderer.string(text);
}

constexpr Native kFunctions[] = {
    {"cycler", "", nullptr},
    {"dict", "*", run_dict},
    {"joiner", "", nullptr},
    {"lipsum", "", nullptr},
    {"namespace", "*", run_namespace},
    {"raise_exception", "message", run_raise},
    {"range", "start stop? step?", run_range},
    {"strftime_now", "format", run_strftime},
};

const Native* find(const NativeTable& table, std::string_view name) {
  for (size_t k = 0; k < table.size; ++k) {
    if (table.begin[k].name == name) return &table.begin[k];
  }
  return nullptr;
}

}  // namespace

const Native* find_filter(std::string_view name) {
  const Native* native = find(filters_of_text(), name);
  return native != nullptr ? native : find(filters_of_sequences(), name);
}

const Native* find_test(std::string_view name) {
  return find({kTests, std::size(kTests)}, name);
}

const Native* find_function(std::string_view name) {
  return find({kFunctions, std::size(kFunctions)}, name);
}

}  // namespace strata::templates

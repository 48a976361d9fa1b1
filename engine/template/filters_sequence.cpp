// SPDX-License-Identifier: Apache-2.0
// Filters of jinja2 on lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/template/renderer.h"
#include "engine/text/text_case.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

Value iterator(const Call& call, const std::vector<Value>& items) {
  return call.renderer.heap().sequence(SequenceKind::kIterator, items);
}

Value keyword(const Call& call, std::string_view name) {
  for (const auto& [known, value] : call.all.keywords) {
    if (known == name) return value;
  }
  return Value::missing();
}

// The value of a path such as "function.name" or "0.role"; `otherwise` replaces what is undefined.
Value path_value(const Call& call, Value value, const Value& path, const Value& otherwise) {
  if (path.is_integral()) return call.renderer.item_of(value, path);
  if (!path.is_string()) return call.renderer.item_of(value, path);
  for (const std::string_view part : split(path.string(), ".", -1)) {
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && read.ec == std::errc() && part[0] != '-' &&
                          read.ptr == part.data() + part.size();
    value = call.renderer.item_of(value, is_index ? Value::of(index) : Value::of(part));
    const bool replaces = !otherwise.is_missing() && !otherwise.is_none();
    if (value.is_undefined() && replaces) value = otherwise;
  }
  return value;
}

Value run_length(const Call& call) {
  const Value& value = call.self;
  switch (value.kind) {
    case Kind::kUndefined:
      return Value::of(int64_t{0});
    case Kind::kString:
      return Value::of(length_of(value.string()));
    case Kind::kDict:
      return Value::of(static_cast<int64_t>(value.dict->size));
    case Kind::kLoop:
      return Value::of(static_cast<int64_t>(value.loop->size));
    case Kind::kSequence:
      if (value.sequence->kind != SequenceKind::kIterator) {
        return Value::of(static_cast<int64_t>(value.sequence->size));
      }
      [[fallthrough]];
    default:
      Renderer::fail(fmt::format("a {} has no length", type_of(value)));
  }
}

Value run_list(const Call& call) {
  const Items items = call.renderer.items_of(call.self);
  return call.renderer.list({items.items, items.items + items.size});
}

Value run_first(const Call& call) {
  if (call.self.is_sequence(SequenceKind::kIterator)) {
    Sequence& sequence = *call.self.sequence;
    if (sequence.taken == sequence.size) return Value::undefined("the first item");
    return sequence.items[sequence.taken++];
  }
  const Items items = call.renderer.items_of(call.self);
  return items.size > 0 ? items.items[0] : Value::undefined("the first item");
}

Value run_last(const Call& call) {
  if (call.self.is_sequence(SequenceKind::kIterator)) {
    Renderer::fail("a generator has no last item", "write `| list` before it");
  }
  const Items items = call.renderer.items_of(call.self);
  return items.size > 0 ? items.items[items.size - 1] : Value::undefined("the last item");
}

Value run_reverse(const Call& call) {
  if (call.self.is_string()) {
    return call.renderer.slice(call.self, Value::none(), Value::none(), Value::of(int64_t{-1}));
  }
  const Items items = call.renderer.items_of(call.self);
  std::vector<Value> reversed(items.items, items.items + items.size);
  std::reverse(reversed.begin(), reversed.end());
  const bool was_iterator = call.self.is_sequence(SequenceKind::kIterator);
  return was_iterator ? call.renderer.list(reversed) : iterator(call, reversed);
}

Value run_join(const Call& call) {
  const std::string_view separator = call.has(0) ? call.renderer.text_of(call.given[0]) : "";
  const Items items = call.renderer.items_of(call.self);
  std::string text;
  for (size_t k = 0; k < items.size; ++k) {
    if (k > 0) text += separator;
    const bool has_path = call.has(1) && !call.given[1].is_none();
    text += call.renderer.text_of(
        has_path ? path_value(call, items.items[k], call.given[1], Value::missing())
                 : items.items[k]);
    call.renderer.require_room(text);
  }
  return call.renderer.string(text);
}

Value run_default(const Call& call) {
  const bool replaces =
      call.self.is_undefined() || (call.has(1) && is_true(call.given[1]) && !is_true(call.self));
  if (!replaces) return call.self;
  return call.has(0) ? call.given[0] : Value::of(std::string_view(""));
}

Value run_items(const Call& call) {
  std::vector<Value> items;
  if (call.self.is_undefined()) return iterator(call, items);
  if (!call.self.is_dict()) Renderer::fail(fmt::format("a {} has no items", type_of(call.self)));
  for (size_t k = 0; k < call.self.dict->size; ++k) {
    items.push_back(call.renderer.pair(call.self.dict->entries[k]));
  }
  return iterator(call, items);
}

Value without_case(const Call& call, const Value& value, bool is_sensitive) {
  if (is_sensitive || !value.is_string()) return value;
  return call.renderer.string(text::to_lower_full(value.string()));
}

struct Keyed {
  Value key;
  Value item;
};

void sort(const Call& call, std::vector<Keyed>& items, bool is_reversed) {
  call.renderer.charge(items.size());
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& one, const Keyed& other) {
    call.renderer.charge(1);
    return is_reversed ? call.renderer.is_less(other.key, one.key)
                       : call.renderer.is_less(one.key, other.key);
  });
}

Value list_of(const Call& call, const std::vector<Keyed>& items) {
  std::vector<Value> values;
  for (const Keyed& one : items) values.push_back(one.item);
  return call.renderer.list(values);
}

bool flag(const Call& call, size_t k) {
  return call.has(k) && is_true(call.given[k]);
}

Value run_dictsort(const Call& call) {
  if (!call.self.is_dict()) Renderer::fail(fmt::format("a {} has no items", type_of(call.self)));
  const std::string_view by = call.has(1) ? call.renderer.text_of(call.given[1]) : "key";
  if (by != "key" && by != "value") Renderer::fail("dictsort sorts by \"key\" or \"value\"");
  std::vector<Keyed> items;
  for (size_t k = 0; k < call.self.dict->size; ++k) {
    const Entry& entry = call.self.dict->entries[k];
    items.push_back({without_case(call, by == "key" ? entry.key : entry.value, flag(call, 0)),
                     call.renderer.pair(entry)});
  }
  sort(call, items, flag(call, 2));
  return list_of(call, items);
}

// The items with what they are compared by.
std::vector<Keyed> keyed_items(const Call& call, size_t sensitive_at, size_t path_at) {
  std::vector<Keyed> keyed;
  const Items items = call.renderer.items_of(call.self);
  const bool has_path = call.has(path_at) && !call.given[path_at].is_none();
  for (size_t k = 0; k < items.size; ++k) {
    const Value& item = items.items[k];
    const Value key =
        has_path ? path_value(call, item, call.given[path_at], Value::missing()) : item;
    keyed.push_back({without_case(call, key, flag(call, sensitive_at)), item});
  }
  return keyed;
}

Value run_sort(const Call& call) {
  const bool has_path = call.has(2) && call.given[2].is_string();
  if (has_path && call.given[2].string().find(',') != std::string_view::npos) {
    Renderer::fail("sorting by several attributes is not supported");
  }
  std::vector<Keyed> items = keyed_items(call, 1, 2);
  sort(call, items, flag(call, 0));
  return list_of(call, items);
}

Value run_unique(const Call& call) {
  std::vector<Value> seen;
  std::vector<Value> unique;
  for (const Keyed& one : keyed_items(call, 0, 1)) {
    Renderer::require_hashable(one.key);
    const bool is_known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return call.renderer.equal(one.key, other);
    });
    call.renderer.charge(1 + seen.size() / 4);
    if (is_known) continue;
    seen.push_back(one.key);
    unique.push_back(one.item);
  }
  return iterator(call, unique);
}

template <bool largest>
Value run_extreme(const Call& call) {
  const std::vector<Keyed> items = keyed_items(call, 0, 1);
  if (items.empty()) return Value::undefined("the extreme of no items");
  const Keyed* best = &items[0];
  for (const Keyed& one : items) {
    const bool is_better = largest ? call.renderer.is_less(best->key, one.key)
                                   : call.renderer.is_less(one.key, best->key);
    if (is_better) best = &one;
  }
  return best->item;
}

Value run_sum(const Call& call) {
  Value sum = call.has(1) ? call.given[1] : Value::of(int64_t{0});
  const Items items = call.renderer.items_of(call.self);
  for (size_t k = 0; k < items.size; ++k) {
    const bool has_path = call.has(0) && !call.given[0].is_none();
    const Value item = has_path ? path_value(call, items.items[k], call.given[0], Value::missing())
                                : items.items[k];
    sum = call.renderer.arithmetic(sum, "+", item);
  }
  return sum;
}

// The arguments behind the first `count`, with those that have names.
Arguments rest_of(const Call& call, size_t count) {
  Arguments rest;
  const auto& positional = call.all.positional;
  rest.positional.assign(positional.begin() + static_cast<ptrdiff_t>(count), positional.end());
  rest.keywords = call.all.keywords;
  return rest;
}

const Native& named(const Call& call, const Value& name, const Native* (*find)(std::string_view)) {
  const std::string_view text = call.renderer.text_of(name);
  const Native* native = find(text);
  if (native == nullptr) {
    Renderer::fail(fmt::format("there is no filter or test {}", text), "correct the template");
  }
  return *native;
}

Value run_map(const Call& call) {
  std::vector<Value> mapped;
  if (!is_true(call.self)) return iterator(call, mapped);
  const Items items = call.renderer.items_of(call.self);
  const Value path = keyword(call, "attribute");
  if (call.all.positional.empty() && path.is_missing()) Renderer::fail("map lacks its filter");
  if (call.all.positional.empty()) {
    for (size_t k = 0; k < items.size; ++k) {
      mapped.push_back(path_value(call, items.items[k], path, keyword(call, "default")));
    }
    return iterator(call, mapped);
  }
  const Native& filter = named(call, call.all.positional[0], find_filter);
  const Arguments rest = rest_of(call, 1);
  for (size_t k = 0; k < items.size; ++k) {
    mapped.push_back(call.renderer.call(filter, items.items[k], rest));
  }
  return iterator(call, mapped);
}

template <bool wanted, bool by_path>
Value run_select(const Call& call) {
  std::vector<Value> selected;
  if (!is_true(call.self)) return iterator(call, selected);
  constexpr size_t kTest = by_path ? 1 : 0;
  const std::vector<Value>& given = call.all.positional;
  if (given.size() < kTest) Renderer::fail("it lacks the name of an attribute");
  const bool has_test = given.size() > kTest;
  const Native* test = has_test ? &named(call, given[kTest], find_test) : nullptr;
  const Arguments rest = has_test ? rest_of(call, kTest + 1) : Arguments();
  const Items items = call.renderer.items_of(call.self);
  for (size_t k = 0; k < items.size; ++k) {
    const Value value =
        by_path ? path_value(call, items.items[k], given[0], Value::missing()) : items.items[k];
    const Value result = has_test ? call.renderer.call(*test, value, rest) : value;
    if (is_true(result) == wanted) selected.push_back(items.items[k]);
  }
  return iterator(call, selected);
}

// Lists of `linecount` items each; the last one is filled up, if there is what to fill it with.
Value run_batch(const Call& call) {
  const int64_t wanted = call.renderer.integer_of(call.given[0], "the size of a batch");
  std::vector<Value> batches;
  std::vector<Value> batch;
  const Items items = call.renderer.items_of(call.self);
  for (size_t k = 0; k < items.size; ++k) {
    if (std::ssize(batch) == wanted) {
      batches.push_back(call.renderer.list(batch));
      batch.clear();
    }
    batch.push_back(items.items[k]);
  }
  if (batch.empty()) return iterator(call, batches);
  const bool fills = call.has(1) && !call.given[1].is_none();
  while (fills && std::ssize(batch) < wanted) {
    call.renderer.heap().charge(sizeof(Value));
    batch.push_back(call.given[1]);
  }
  batches.push_back(call.renderer.list(batch));
  return iterator(call, batches);
}

// As many lists as asked for; the first ones have an item more where it does not divide.
Value run_slice(const Call& call) {
  const int64_t count = call.renderer.integer_of(call.given[0], "the number of slices");
  if (count == 0) Renderer::fail("it cannot make 0 slices");
  const Items items = call.renderer.items_of(call.self);
  const auto size = static_cast<int64_t>(items.size);
  const bool fills = call.has(1) && !call.given[1].is_none();
  std::vector<Value> slices;
  const Value* at = items.items;
  for (int64_t k = 0; k < count; ++k) {
    const bool has_more = k < size % count;
    const Value* end = at + size / count + (has_more ? 1 : 0);
    std::vector<Value> slice(at, end);
    if (fills && !has_more) slice.push_back(call.given[1]);
    slices.push_back(call.renderer.list(slice));
    call.renderer.charge(1);
    at = end;
  }
  return iterator(call, slices);
}

constexpr Native kSequenceFilters[] = {
    {"attr", "", nullptr},
    {"batch", "linecount fill_with?", run_batch},
    {"center", "", nullptr},
    {"count", "", run_length},
    {"d", "default_value? boolean?", run_default},
    {"default", "default_value? boolean?", run_default},
    {"dictsort", "case_sensitive? by? reverse?", run_dictsort},
    {"filesizeformat", "", nullptr},
    {"first", "", run_first},
    {"forceescape", "", nullptr},
    {"groupby", "", nullptr},
    {"items", "", run_items},
    {"join", "d? attribute?", run_join},
    {"last", "", run_last},
    {"length", "", run_length},
    {"list", "", run_list},
    {"map", "*", run_map},
    {"max", "case_sensitive? attribute?", run_extreme<true>},
    {"min", "case_sensitive? attribute?", run_extreme<false>},
    {"pprint", "", nullptr},
    {"random", "", nullptr},
    {"reject", "*", run_select<false, false>},
    {"rejectattr", "*", run_select<false, true>},
    {"reverse", "", run_reverse},
    {"select", "*", run_select<true, false>},
    {"selectattr", "*", run_select<true, true>},
    {"slice", "slices fill_with?", run_slice},
    {"sort", "reverse? case_sensitive? attribute?", run_sort},
    {"striptags", "", nullptr},
    {"sum", "attribute? start?", run_sum},
    {"unique", "case_sensitive? attribute?", run_unique},
    {"urlencode", "", nullptr},
    {"urlize", "", nullptr},
    {"wordcount", "", nullptr},
    {"wordwrap", "", nullptr},
    {"xmlattr", "", nullptr},
};

}  // namespace

NativeTable filters_of_sequences() {
  return {kSequenceFilters, std::size(kSequenceFilters)};
}

}  // namespace strata::templates

// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices, as the sandbox of jinja2 looks them up.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/template/renderer.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = [](size_t value) { return Value::of(static_cast<int64_t>(value)); };
  if (name == "index") return count(loop.index + 1);
  if (name == "index0") return count(loop.index);
  if (name == "first") return Value::of(loop.index == 0);
  if (name == "last") return Value::of(loop.index + 1 == loop.size);
  if (name == "length") return count(loop.size);
  if (name == "revindex") return count(loop.size - loop.index);
  if (name == "revindex0") return count(loop.size - loop.index - 1);
  if (name == "depth") return count(loop.depth);
  if (name == "depth0") return count(loop.depth - 1);
  if (name == "previtem") {
    return loop.index > 0 ? loop.items[loop.index - 1] : Value::undefined("loop.previtem");
  }
  if (name == "nextitem") {
    return loop.index + 1 < loop.size ? loop.items[loop.index + 1]
                                      : Value::undefined("loop.nextitem");
  }
  return Value::missing();
}

// An attribute in Python's sense, without items of dicts; missing when there is none.
Value python_attribute(Renderer& renderer, const Value& object, std::string_view name) {
  if (object.kind == Kind::kLoop) {
    const Value value = loop_attribute(*object.loop, name);
    if (!value.is_missing()) return value;
  }
  if (object.kind == Kind::kNamespace) {
    for (const auto& [known, value] : object.name_space->members) {
      if (known == name) return value;
    }
    return Value::missing();
  }
  if (object.kind == Kind::kFunction && object.function->macro != nullptr && name == "name") {
    return Value::of(object.function->name);
  }
  if (const Native* method = find_method(object, name)) {
    return renderer.heap().function({.name = method->name, .native = method, .self = object});
  }
  return Value::missing();
}

// The methods that change their object, which exist, but which the sandbox makes undefined.
bool is_forbidden(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOfLists = {
      "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kOfDicts = {"clear", "pop", "popitem",
                                                               "setdefault", "update"};
  if (object.is_sequence(SequenceKind::kList)) {
    return std::find(kOfLists.begin(), kOfLists.end(), name) != kOfLists.end();
  }
  return object.is_dict() && std::find(kOfDicts.begin(), kOfDicts.end(), name) != kOfDicts.end();
}

// Where an index lies in a sequence; -1 when it is outside.
int64_t place_of(int64_t index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

bool has_items(const Value& value) {
  if (value.kind != Kind::kSequence) return false;
  const SequenceKind kind = value.sequence->kind;
  return kind == SequenceKind::kList || kind == SequenceKind::kTuple ||
         kind == SequenceKind::kRange;
}

}  // namespace

Value Renderer::attribute_of(const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    fail(fmt::format("{} is undefined, so it has no attribute {}", object.string(), name));
  }
  const Value attribute = python_attribute(*this, object, name);
  if (!attribute.is_missing()) return attribute;
  if (is_forbidden(object, name)) return Value::undefined(name);
  if (object.is_dict()) {
    charge(object.dict->size / 16);
    if (const Value* value = find(*object.dict, name)) return *value;
  }
  return Value::undefined(name);
}

Value Renderer::item_of(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    fail(fmt::format("{} is undefined, so it has no items", object.string()));
  }
  if (object.is_dict()) {
    charge(object.dict->size / 16);
    if (const Value* value = find(*object.dict, key)) return *value;
  } else if (key.is_integral() && has_items(object)) {
    const Sequence& sequence = *object.sequence;
    const int64_t place = place_of(key.as_integer(), static_cast<int64_t>(sequence.size));
    if (place >= 0) return sequence.items[place];
  } else if (key.is_integral() && object.is_string()) {
    const std::string_view text = object.string();
    charge(text.size() / 256);
    const int64_t place = place_of(key.as_integer(), length_of(text));
    if (place >= 0) {
      const size_t at = offset_of(text, place);
      Value value = Value::of(text.substr(at, text::utf8_length(text[at])));
      value.is_markup = object.is_markup;
      return value;
    }
  }
  if (key.is_string()) {
    const Value attribute = python_attribute(*this, object, key.string());
    if (!attribute.is_missing()) return attribute;
    return Value::undefined(key.string());
  }
  return Value::undefined("the item");
}

Value Renderer::slice(const Value& object, const Value& begin, const Value& end,
                      const Value& step_value) {
  if (!object.is_string() && !has_items(object)) {
    fail(fmt::format("a {} cannot be sliced", type_of(object)));
  }
  const bool is_text = object.is_string();
  const int64_t size =
      is_text ? length_of(object.string()) : static_cast<int64_t>(object.sequence->size);
  charge(static_cast<size_t>(size) / 64);
  const int64_t step = step_value.is_none() ? 1 : integer_of(step_value, "the step of a slice");
  if (step == 0) fail("the step of a slice is 0");
  // Python's slice.indices().
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t index = integer_of(bound, "a bound of a slice");
    if (index < 0) index = index < -size ? -1 - size : index + size;
    return std::clamp(index, low, high);
  };
  int64_t at = clamp(begin, step < 0 ? high : low);
  const int64_t stop = clamp(end, step < 0 ? low : high);
  if (is_text && step == 1) {
    const std::string_view text = object.string();
    if (at >= stop) return Value::of(std::string_view(""));
    const size_t from = offset_of(text, at);
    Value value = Value::of(text.substr(from, offset_of(text.substr(from), stop - at)));
    value.is_markup = object.is_markup;
    return value;
  }
  std::vector<Value> taken;
  const Items items = items_of(object);
  for (; step > 0 ? at < stop : at > stop; at += step) {
    taken.push_back(items.items[at]);
    if (step > size || step < -size) break;  // so that `at` stays in range
  }
  charge(taken.size() / 4);
  if (!is_text) return heap_.sequence(object.sequence->kind, taken);
  std::string text;
  for (const Value& item : taken) text += item.string();
  Value value = string(text);
  value.is_markup = object.is_markup;
  return value;
}

Items Renderer::items_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return {nullptr, 0};
    case Kind::kSequence: {
      Sequence& sequence = *value.sequence;
      charge(sequence.size / 64);
      if (sequence.kind != SequenceKind::kIterator) return {sequence.items, sequence.size};
      const size_t taken = std::exchange(sequence.taken, sequence.size);
      return {sequence.items + taken, sequence.size - taken};
    }
    case Kind::kDict: {
      std::vector<Value> keys;
      for (size_t k = 0; k < value.dict->size; ++k) keys.push_back(value.dict->entries[k].key);
      const Sequence& list_of_keys = *list(keys).sequence;
      charge(keys.size() / 4);
      return {list_of_keys.items, list_of_keys.size};
    }
    case Kind::kString: {
      std::vector<Value> characters;
      const std::string_view text = value.string();
      charge(text.size() / 4);
      for (size_t at = 0; at < text.size(); at += text::utf8_length(text[at])) {
        characters.push_back(Value::of(text.substr(at, text::utf8_length(text[at]))));
      }
      const Sequence& all = *list(characters).sequence;
      return {all.items, all.size};
    }
    default:
      fail(fmt::format("a {} has no items to loop over", type_of(value)));
  }
}

}  // namespace strata::templates

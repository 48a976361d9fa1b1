// SPDX-License-Identifier: Apache-2.0
#include "engine/template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/base/units.h"
#include "engine/config/json.h"

namespace strata::templates {
namespace {

constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kWeightMax = size_t{1} << 26;
constexpr uint32_t kValueDepthMax = 100;

uint32_t depth_of(const Value& value) {
  if (value.kind == Kind::kSequence) return value.sequence->depth;
  return value.kind == Kind::kDict ? value.dict->depth : 0;
}

// Adds up what the items of a container weigh, and how deep they are.
struct Measure {
  size_t weight = 1;
  uint32_t depth = 1;

  void add(const Value& value) {
    weight += weight_of(value);
    depth = std::max(depth, depth_of(value) + 1);
    if (weight > kWeightMax) throw Heap::Refusal{"a value has too many items"};
    if (depth > kValueDepthMax) {
      throw Heap::Refusal{fmt::format("a value is nested deeper than {} levels", kValueDepthMax)};
    }
  }
};

bool are_equal(const Value* left, const Value* right, size_t size) {
  for (size_t k = 0; k < size; ++k) {
    if (!is_equal(left[k], right[k])) return false;
  }
  return true;
}

bool is_equal(const Dict& left, const Dict& right) {
  if (left.size != right.size) return false;
  for (size_t k = 0; k < left.size; ++k) {
    const Value* other = find(right, left.entries[k].key);
    if (other == nullptr || !templates::is_equal(left.entries[k].value, *other)) return false;
  }
  return true;
}

// Exact, although an integer may not have a double.
bool is_equal(int64_t left, double right) {
  constexpr double kBound = 9223372036854775808.0;
  return right >= -kBound && right < kBound && right == std::floor(right) &&
         static_cast<int64_t>(right) == left;
}

}  // namespace

void Heap::charge(size_t bytes) {
  if (bytes > limit_bytes_ - used_bytes_) {
    throw Refusal{"it takes more memory than " + format_bytes(static_cast<int64_t>(limit_bytes_)),
                  true};
  }
  used_bytes_ += bytes;
}

void* Heap::allocate(size_t bytes) {
  bytes = (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) *
          alignof(std::max_align_t);
  if (bytes > free_bytes_) {
    const size_t block = std::max(bytes, kBlockBytes);
    charge(block);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
    if (block - bytes < free_bytes_) return blocks_.back().get();  // keep the larger rest
    free_ = blocks_.back().get();
    free_bytes_ = block;
  }
  char* result = free_;
  free_ += bytes;
  free_bytes_ -= bytes;
  return result;
}

Value Heap::joined(std::string_view first, std::string_view second) {
  const size_t size = first.size() + second.size();
  if (size > UINT32_MAX) throw Refusal{"a string has more than 4 GiB"};
  char* copy = array<char>(size);
  std::copy(first.begin(), first.end(), copy);
  std::copy(second.begin(), second.end(), copy + first.size());
  return Value::of(std::string_view(copy, size));
}

Value Heap::sequence(SequenceKind kind, const std::vector<Value>& items) {
  Measure measure;
  for (const Value& item : items) measure.add(item);
  Value* copy = array<Value>(items.size());
  std::uninitialized_copy(items.begin(), items.end(), copy);
  return Value::of(new (array<Sequence>(1))
                       Sequence{kind, copy, items.size(), measure.weight, measure.depth});
}

Value Heap::dict(const std::vector<Entry>& entries) {
  Entry* copy = array<Entry>(entries.size());
  Dict dict{copy, 0, 0, 0};
  for (const Entry& entry : entries) {
    const Value* old = find(dict, entry.key);
    if (old != nullptr) {
      *const_cast<Value*>(old) = entry.value;
    } else {
      new (copy + dict.size++) Entry(entry);
    }
  }
  return finish(dict);
}

Value Heap::finish(Dict dict) {
  Measure measure;
  for (size_t k = 0; k < dict.size; ++k) {
    measure.add(dict.entries[k].key);
    measure.add(dict.entries[k].value);
  }
  dict.weight = measure.weight;
  dict.depth = measure.depth;
  return Value::of(static_cast<const Dict*>(new (array<Dict>(1)) Dict(dict)));
}

Value Heap::name_space() {
  charge(sizeof(Namespace));
  return Value::of(&name_spaces_.emplace_back());
}

Value Heap::function(const Function& function) {
  return Value::of(static_cast<const Function*>(new (array<Function>(1)) Function(function)));
}

Loop* Heap::loop(const Loop& loop) {
  return new (array<Loop>(1)) Loop(loop);
}

Value Heap::from_json(const config::Json& json) {
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::of(*json.boolean());
  if (json.is_string()) return Value::of(std::string_view(json.string()));
  if (json.is_integer()) {
    if (!json.int64()) throw Refusal{json.describe() + " has more than 64 bits"};
    return Value::of(*json.int64());
  }
  if (json.is_number()) return Value::of(*json.number());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.items().size());
    for (const config::Json& item : json.items()) items.push_back(from_json(item));
    return sequence(SequenceKind::kList, items);
  }
  const size_t size = json.members().size();  // without duplicates
  Entry* entries = array<Entry>(size);
  for (size_t k = 0; k < size; ++k) {
    const config::JsonMember& member = json.members()[k];
    new (entries + k) Entry{Value::of(std::string_view(member.name)), from_json(member.value)};
  }
  return finish(Dict{entries, size, 0, 0});
}

size_t weight_of(const Value& value) {
  if (value.is_string()) return 1 + value.size / 64;
  if (value.kind == Kind::kSequence) return value.sequence->weight;
  return value.kind == Kind::kDict ? value.dict->weight : 1;
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.number != 0;
    case Kind::kString:
      return value.size != 0;
    case Kind::kSequence:
      return value.sequence->kind == SequenceKind::kIterator || value.sequence->size != 0;
    case Kind::kDict:
      return value.dict->size != 0;
    case Kind::kLoop:
      return value.loop->size != 0;
    case Kind::kNamespace:
    case Kind::kFunction:
      return true;
  }
  return true;
}

bool is_equal(const Value& left, const Value& right) {
  if (left.is_numeric() && right.is_numeric()) {
    if (left.is_integral() && right.is_integral()) return left.as_integer() == right.as_integer();
    if (left.is_integral()) return is_equal(left.as_integer(), right.number);
    if (right.is_integral()) return is_equal(right.as_integer(), left.number);
    return left.number == right.number;
  }
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return left.string() == right.string();
    case Kind::kSequence: {
      const Sequence& one = *left.sequence;
      const Sequence& other = *right.sequence;
      if (&one == &other) return true;
      return one.kind == other.kind && one.kind != SequenceKind::kIterator &&
             one.kind != SequenceKind::kValues && one.size == other.size &&
             are_equal(one.items, other.items, one.size);
    }
    case Kind::kDict:
      return left.dict == right.dict || is_equal(*left.dict, *right.dict);
    case Kind::kNamespace:
      return left.name_space == right.name_space;
    case Kind::kFunction:
      return left.function == right.function;
    case Kind::kLoop:
      return left.loop == right.loop;
    default:
      return false;
  }
}

const Value* find(const Dict& dict, std::string_view key) {
  for (size_t k = 0; k < dict.size; ++k) {
    const Entry& entry = dict.entries[k];
    if (entry.key.is_string() && entry.key.string() == key) return &entry.value;
  }
  return nullptr;
}

const Value* find(const Dict& dict, const Value& key) {
  if (key.is_string()) return find(dict, key.string());
  for (size_t k = 0; k < dict.size; ++k) {
    if (is_equal(dict.entries[k].key, key)) return &dict.entries[k].value;
  }
  return nullptr;
}

std::string_view type_of(const Value& value) {
  static constexpr std::array<std::string_view, 7> kSequences = {
      "list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};
  static constexpr std::array<std::string_view, 12> kNames = {
      "missing", "Undefined", "NoneType", "bool",      "int",      "float",
      "str",     "",          "dict",     "Namespace", "function", "LoopContext"};
  if (value.kind == Kind::kSequence) return kSequences[static_cast<size_t>(value.sequence->kind)];
  if (value.is_markup) return "Markup";
  return kNames[static_cast<size_t>(value.kind)];
}

}  // namespace strata::templates

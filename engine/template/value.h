// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::config {
class Json;
}

namespace strata::templates {

struct Node;
struct Scope;
struct Value;

// Python's types as far as templates see them.
enum class Kind : uint8_t {
  kMissing,    // an argument that was not given; no expression has this value
  kUndefined,  // jinja2's Undefined: prints nothing, and its attributes are errors
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

enum class SequenceKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kIterator };

// Lists do not change, because the sandbox refuses the methods that change them.
struct Sequence {
  SequenceKind kind;
  const Value* items;
  size_t size;
  size_t weight;
  uint32_t depth;
  size_t taken = 0;  // of an iterator: items that were used already
};

struct Entry;
struct Dict {
  const Entry* entries;
  size_t size;
  size_t weight;
  uint32_t depth;
};

struct Namespace;
struct Function;
struct Loop;

// A value. Trivially copyable: strings and containers belong to the Heap of the rendering, to the
// template, or to the data that is rendered.
struct Value {
  Kind kind = Kind::kUndefined;
  bool is_markup = false;  // a string of markupsafe, which escapes what is added to it
  uint32_t size = 0;       // of a string, or of the name of what is undefined
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char* text = nullptr;
    Sequence* sequence;
    const Dict* dict;
    Namespace* name_space;
    const Function* function;
    const Loop* loop;
  };

  static Value missing() {
    Value value;
    value.kind = Kind::kMissing;
    return value;
  }
  static Value none() {
    Value value;
    value.kind = Kind::kNone;
    return value;
  }
  static Value of(bool given) {
    Value value;
    value.kind = Kind::kBool;
    value.boolean = given;
    return value;
  }
  static Value of(int64_t given) {
    Value value;
    value.kind = Kind::kInt;
    value.integer = given;
    return value;
  }
  static Value of(double given) {
    Value value;
    value.kind = Kind::kFloat;
    value.number = given;
    return value;
  }
  // A view of bytes that outlive the value.
  static Value of(std::string_view given) {
    Value value;
    value.kind = Kind::kString;
    value.size = static_cast<uint32_t>(given.size());
    value.text = given.data();
    return value;
  }
  static Value of(const char*) = delete;
  static Value undefined(std::string_view name) {
    Value value = of(name);
    value.kind = Kind::kUndefined;
    return value;
  }
  static Value of(Sequence* given) {
    Value value;
    value.kind = Kind::kSequence;
    value.sequence = given;
    return value;
  }
  static Value of(const Dict* given) {
    Value value;
    value.kind = Kind::kDict;
    value.dict = given;
    return value;
  }
  static Value of(Namespace* given) {
    Value value;
    value.kind = Kind::kNamespace;
    value.name_space = given;
    return value;
  }
  static Value of(const Function* given) {
    Value value;
    value.kind = Kind::kFunction;
    value.function = given;
    return value;
  }
  static Value of(const Loop* given) {
    Value value;
    value.kind = Kind::kLoop;
    value.loop = given;
    return value;
  }

  bool is_missing() const { return kind == Kind::kMissing; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_dict() const { return kind == Kind::kDict; }
  bool is_sequence(SequenceKind wanted) const {
    return kind == Kind::kSequence && sequence->kind == wanted;
  }
  // Python's int, of which bool is one.
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_numeric() const { return is_integral() || kind == Kind::kFloat; }
  int64_t as_integer() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double as_number() const {
    return kind == Kind::kFloat ? number : static_cast<double>(as_integer());
  }
  std::string_view string() const { return {text, size}; }
};

struct Entry {
  Value key;
  Value value;
};

struct Namespace {
  std::vector<std::pair<std::string_view, Value>> members;
};

struct Native;

// What can be called: a macro, a function or method of ours, or a name of Python's that is known
// but not supported (neither).
struct Function {
  std::string_view name;
  const Native* native = nullptr;
  Value self = {};              // of a method
  const Node* macro = nullptr;  // with the scope that it was defined in
  Scope* scope = nullptr;
};

// The variable `loop`.
struct Loop {
  const Value* items = nullptr;
  size_t size = 0;
  size_t index = 0;
  size_t depth = 0;
  const Node* node = nullptr;  // of a recursive loop, which `loop` calls again
  Scope* scope = nullptr;
};

// Owns what a rendering makes, until the rendering ends.
//
// Failure: Refusal when more than `limit_bytes` are in use, when containers are nested too deeply
// or share their items so often that walking them would take too long, and for integers of more
// than 64 bits.
class Heap {
 public:
  struct Refusal {
    std::string cause;
    bool is_of_memory = false;
  };

  explicit Heap(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Counts bytes that are held elsewhere on behalf of the rendering.
  void charge(size_t bytes);
  size_t used_bytes() const { return used_bytes_; }
  Value string(std::string_view text) { return joined(text, {}); }
  Value joined(std::string_view first, std::string_view second);
  Value sequence(SequenceKind kind, const std::vector<Value>& items);
  // Later entries replace earlier ones of the same key.
  Value dict(const std::vector<Entry>& entries);
  Value name_space();
  Value function(const Function& function);
  Loop* loop(const Loop& loop);
  // Views the strings of `json`, which must outlive the heap.
  Value from_json(const config::Json& json);

 private:
  void* allocate(size_t bytes);
  Value finish(Dict dict);
  template <class T>
  T* array(size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  const size_t limit_bytes_;
  size_t used_bytes_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t free_bytes_ = 0;
  std::deque<Namespace> name_spaces_;
};

// The work of walking a value with all that it contains: items, and 64 bytes of strings, each time
// that they occur.
size_t weight_of(const Value& value);
// Python's bool(value).
bool is_true(const Value& value);
// Python's ==.
bool is_equal(const Value& left, const Value& right);
// The value of a key; null when there is none.
const Value* find(const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);
// The name of Python's type: "str", "dict", "NoneType".
std::string_view type_of(const Value& value);

}  // namespace strata::templates

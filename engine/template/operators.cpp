// SPDX-License-Identifier: Apache-2.0
// Python's operators, and the texts of values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/template/renderer.h"

namespace strata::templates {
namespace {

// Collects text within the limits of a rendering.
class BoundedText final : public TextSink {
 public:
  explicit BoundedText(Renderer& renderer) : renderer_(renderer) {}
  void add(std::string_view text) override {
    renderer_.charge(1 + text.size() / 64);
    text_.append(text);
    if (text_.size() > renderer_.settings().limits.memory_bytes) {
      Renderer::fail("the text of a value takes too much memory");
    }
  }
  Value take() { return renderer_.string(text_); }

 private:
  Renderer& renderer_;
  std::string text_;
};

int64_t floor_divide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return quotient - (left % right != 0 && (left < 0) != (right < 0));
}

double floor_remainder(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

// As CPython's float_divmod(): the quotient is exact but for its last rounding.
double floor_divide(double left, double right) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0 && (rest < 0) != (right < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

[[noreturn]] void fail_range() {
  Renderer::fail("the result is an integer of more than 64 bits");
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_range();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_range();
  }
  return result;
}

Value integer_arithmetic(int64_t left, std::string_view name, int64_t right) {
  int64_t result = 0;
  if (name == "+"   ? __builtin_add_overflow(left, right, &result)
      : name == "-" ? __builtin_sub_overflow(left, right, &result)
                    : name == "*" && __builtin_mul_overflow(left, right, &result)) {
    fail_range();
  }
  if (name == "+" || name == "-" || name == "*") return Value::of(result);
  if (name == "**") {
    if (right >= 0) return Value::of(power(left, right));
    if (left == 0) Renderer::fail("0 has no negative power");
    return Value::of(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  if (right == 0) Renderer::fail("it divides by zero");
  if (right == -1 && left == INT64_MIN) {
    if (name == "%") return Value::of(int64_t{0});
    if (name == "//") fail_range();
  }
  if (name == "//") return Value::of(floor_divide(left, right));
  if (name == "%") return Value::of(left - floor_divide(left, right) * right);
  return Value::of(static_cast<double>(static_cast<long double>(left) / right));
}

Value float_arithmetic(double left, std::string_view name, double right) {
  if (name == "+") return Value::of(left + right);
  if (name == "-") return Value::of(left - right);
  if (name == "*") return Value::of(left * right);
  if (name == "**") {
    const double result = std::pow(left, right);
    if (std::isfinite(left) && std::isfinite(right) && !std::isfinite(result)) {
      Renderer::fail("the power is out of range");
    }
    return Value::of(result);
  }
  if (right == 0) Renderer::fail("it divides by zero");
  if (name == "//") return Value::of(floor_divide(left, right));
  if (name == "%") return Value::of(floor_remainder(left, right));
  return Value::of(left / right);
}

[[noreturn]] void fail_operands(const Value& left, std::string_view name, const Value& right) {
  for (const Value& value : {left, right}) {
    if (value.is_undefined()) Renderer::fail(fmt::format("{} is undefined", value.string()));
  }
  Renderer::fail(
      fmt::format("{} has no meaning between a {} and a {}", name, type_of(left), type_of(right)));
}

}  // namespace

Value Renderer::string(std::string_view text) {
  charge(text.size() / 64);
  return heap_.string(text);
}

std::string_view Renderer::text_of(const Value& value) {
  if (value.is_string()) return value.string();
  BoundedText text(*this);
  write_text(value, text);
  return text.take().string();
}

std::string_view Renderer::repr_of(const Value& value) {
  BoundedText text(*this);
  write_repr(value, text);
  return text.take().string();
}

std::string_view Renderer::json_of(const Value& value, const JsonStyle& style) {
  BoundedText text(*this);
  write_json(value, style, text);
  return text.take().string();
}

int64_t Renderer::integer_of(const Value& value, const char* what) const {
  if (value.is_integral()) return value.as_integer();
  fail(fmt::format("{} is a {}, not an integer", what, type_of(value)));
}

Value Renderer::negate(const Value& value) const {
  if (value.kind == Kind::kFloat) return Value::of(-value.number);
  if (value.is_undefined()) fail(fmt::format("{} is undefined", value.string()));
  if (!value.is_integral()) fail(fmt::format("a {} has no sign", type_of(value)));
  if (value.as_integer() == INT64_MIN) fail_range();
  return Value::of(-value.as_integer());
}

Value Renderer::add(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    charge((size_t{left.size} + right.size) / 64);
    const bool is_markup = left.is_markup || right.is_markup;
    const auto part = [&](const Value& value) {
      return is_markup && !value.is_markup ? escape(value.string()) : std::string(value.string());
    };
    if (!is_markup && left.size == 0) return right;
    if (!is_markup && right.size == 0) return left;
    Value sum = is_markup ? heap_.string(part(left) + part(right))
                          : heap_.joined(left.string(), right.string());
    sum.is_markup = is_markup;
    return sum;
  }
  const bool are_lists =
      left.is_sequence(SequenceKind::kList) && right.is_sequence(SequenceKind::kList);
  const bool are_tuples =
      left.is_sequence(SequenceKind::kTuple) && right.is_sequence(SequenceKind::kTuple);
  if (!are_lists && !are_tuples) fail_operands(left, "+", right);
  const Sequence& one = *left.sequence;
  const Sequence& other = *right.sequence;
  charge((one.size + other.size) / 8);
  std::vector<Value> items(one.items, one.items + one.size);
  items.insert(items.end(), other.items, other.items + other.size);
  return heap_.sequence(one.kind, items);
}

Value Renderer::repeat(const Value& value, int64_t given_count) {
  const size_t count = given_count < 0 ? 0 : static_cast<size_t>(given_count);
  const size_t size = value.is_string() ? value.size : value.sequence->size * sizeof(Value);
  if (size > 0 && count > settings_.limits.memory_bytes / size) {
    fail_for_memory("it repeats a value too often");
  }
  charge(count + size * count / 64);
  if (value.is_string()) {
    std::string text;
    text.reserve(size * count);
    for (size_t k = 0; k < count; ++k) text += value.string();
    Value result = heap_.string(text);
    result.is_markup = value.is_markup;
    return result;
  }
  std::vector<Value> items;
  const Sequence& sequence = *value.sequence;
  for (size_t k = 0; k < count; ++k) {
    items.insert(items.end(), sequence.items, sequence.items + sequence.size);
  }
  return heap_.sequence(sequence.kind, items);
}

Value Renderer::multiply(const Value& left, const Value& right) {
  const auto repeats = [](const Value& value) {
    return value.is_string() || value.is_sequence(SequenceKind::kList) ||
           value.is_sequence(SequenceKind::kTuple);
  };
  if (repeats(left) && right.is_integral()) return repeat(left, right.as_integer());
  if (repeats(right) && left.is_integral()) return repeat(right, left.as_integer());
  fail_operands(left, "*", right);
}

Value Renderer::arithmetic(const Value& left, std::string_view name, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return integer_arithmetic(left.as_integer(), name, right.as_integer());
  }
  if (left.is_numeric() && right.is_numeric()) {
    return float_arithmetic(left.as_number(), name, right.as_number());
  }
  if (name == "+") return add(left, right);
  if (name == "*") return multiply(left, right);
  if (name == "%" && left.is_string()) return format_by_percent(*this, left, right);
  fail_operands(left, name, right);
}

Value Renderer::pair(const Entry& entry) {
  charge(1);
  return heap_.sequence(SequenceKind::kTuple, {entry.key, entry.value});
}

void Renderer::require_room(const std::string& text) {
  if (text.size() > settings_.limits.memory_bytes) fail_for_memory("a text takes too much memory");
}

Value Renderer::replaced(const Value& text, std::string_view from, std::string_view to,
                         int64_t most) {
  // Python refuses nothing, but the result may be long.
  const size_t places = from.empty() ? text.size + 1 : text.size / from.size();
  if (to.size() > 0 && places > settings_.limits.memory_bytes / to.size()) {
    fail_for_memory("the result of replace may take too much memory");
  }
  Value value = string(replace(text.string(), from, to, most));
  value.is_markup = text.is_markup;
  return value;
}

bool Renderer::equal(const Value& left, const Value& right) {
  charge(std::min(weight_of(left), weight_of(right)) / 4);
  return is_equal(left, right);
}

bool Renderer::is_less(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.as_integer() < right.as_integer();
  if (left.is_numeric() && right.is_numeric()) {
    const auto exact = [](const Value& value) -> long double {
      return value.kind == Kind::kFloat ? static_cast<long double>(value.number)
                                        : static_cast<long double>(value.as_integer());
    };
    return exact(left) < exact(right);
  }
  if (left.is_string() && right.is_string()) return left.string() < right.string();
  const bool are_sequences =
      left.kind == Kind::kSequence && right.kind == Kind::kSequence &&
      left.sequence->kind == right.sequence->kind &&
      (left.is_sequence(SequenceKind::kList) || left.is_sequence(SequenceKind::kTuple));
  if (!are_sequences) fail_operands(left, "<", right);
  const Sequence& one = *left.sequence;
  const Sequence& other = *right.sequence;
  for (size_t k = 0; k < one.size && k < other.size; ++k) {
    charge(1);
    if (!equal(one.items[k], other.items[k])) return is_less(one.items[k], other.items[k]);
  }
  return one.size < other.size;
}

bool Renderer::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(fmt::format("a {} is looked for in a string, which can hold only strings",
                       type_of(item)));
    }
    charge(container.size / 256);
    return container.string().find(item.string()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    require_hashable(item);
    charge(container.dict->size / 16);
    return find(*container.dict, item) != nullptr;
  }
  const Items items = items_of(container);
  for (size_t k = 0; k < items.size; ++k) {
    charge(1);
    if (equal(items.items[k], item)) return true;
  }
  return false;
}

void Renderer::require_hashable(const Value& key) {
  const bool is_list = key.is_sequence(SequenceKind::kList) || key.is_dict();
  if (is_list) fail(fmt::format("a {} cannot be a key of a dict", type_of(key)));
  if (!key.is_sequence(SequenceKind::kTuple)) return;
  for (size_t k = 0; k < key.sequence->size; ++k) require_hashable(key.sequence->items[k]);
}

bool Renderer::compare(const Value& left, std::string_view name, const Value& right) {
  if (name == "==") return equal(left, right);
  if (name == "!=") return !equal(left, right);
  if (name == "in") return contains(right, left);
  if (name == "not in") return !contains(right, left);
  if (name == ">") return is_less(right, left);
  if (name == "<") return is_less(left, right);
  // Not the negation of the other: NaN is neither.
  return name == ">=" ? is_less(right, left) || equal(left, right)
                      : is_less(left, right) || equal(left, right);
}

}  // namespace strata::templates

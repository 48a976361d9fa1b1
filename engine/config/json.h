// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata::config {

struct JsonMember;

// Limits beyond which a text is refused.
struct JsonLimits {
  int64_t bytes = 16 << 20;
  int64_t values = 4 << 20;  // numbers, strings, arrays, ... in total
  int depth = 64;
};

// A JSON value. Objects keep the order of their members; integers that fit stay integers.
//
// parse() refuses duplicate member names, invalid UTF-8, anything after the value, and texts beyond
// the limits; its Error (kConfig) reads "cannot read JSON: SOURCE:LINE:COLUMN: cause". Memory:
// about 64 bytes a value and the strings.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;

  Json();
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value);
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array value);
  Json(Object value);

  static Json array();
  static Json object();

  // `source` names the text in errors: a path. `advice` follows the cause when the text is not
  // JSON.
  static Json parse(std::string_view text, const std::string& source, const JsonLimits& limits = {},
                    std::string_view advice = "");

  // Reads a regular file of at most limits.bytes.
  static Json read_file(const std::string& path, const JsonLimits& limits = {},
                        std::string_view advice = "");

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  // Written without fraction and exponent, and within int64 or uint64.
  bool is_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  // "an object", "the string \"x\"", "1.5": for messages.
  std::string describe() const;

  // The value as that type; nullopt when it has another type or does not fit. An integral double
  // such as 1e9 is an integer; every number is a double.
  std::optional<bool> boolean() const;
  std::optional<int64_t> int64() const;
  std::optional<uint64_t> uint64() const;
  std::optional<double> number() const;

  // The caller must have checked the type.
  const std::string& string() const& { return std::get<std::string>(value_); }
  std::string string() &&;
  const Array& items() const& { return std::get<Array>(value_); }
  Array& items() & { return std::get<Array>(value_); }
  Array items() &&;
  const Object& members() const& { return std::get<Object>(value_); }
  Object& members() & { return std::get<Object>(value_); }
  Object members() &&;

  // A member's value; null when it is missing or this is not an object. Linear in the members.
  const Json* find(std::string_view name) const;
  // Replaces or appends a member; makes an object of a null.
  void set(std::string_view name, Json value);
  // Appends an item; makes an array of a null.
  void push_back(Json value);

  // As text: one line, or `indent` spaces a level. Doubles round-trip and keep a fraction or an
  // exponent; NaN and infinities become null; bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  void dump_to(std::string& out, int indent, int level) const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string name;
  Json value;
};

// Defined here, because these functions need the complete JsonMember.
inline Json::Json() = default;
inline Json::Json(std::nullptr_t) {}
inline Json::Json(bool value) : value_(value) {}
inline Json::Json(int value) : value_(int64_t{value}) {}
inline Json::Json(int64_t value) : value_(value) {}
inline Json::Json(uint64_t value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}
inline Json::Json(std::string_view value) : value_(std::string(value)) {}
inline Json::Json(const char* value) : value_(std::string(value)) {}
inline Json::Json(Array value) : value_(std::move(value)) {}
inline Json::Json(Object value) : value_(std::move(value)) {}
inline Json Json::array() {
  return Json(Array());
}
inline Json Json::object() {
  return Json(Object());
}
inline std::string Json::string() && {
  return std::get<std::string>(std::move(value_));
}
inline Json::Array Json::items() && {
  return std::get<Array>(std::move(value_));
}
inline Json::Object Json::members() && {
  return std::get<Object>(std::move(value_));
}

}  // namespace strata::config

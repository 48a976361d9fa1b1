// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>

#include "engine/base/advice.h"
#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::model {

[[noreturn]] inline void refuse_config(const std::string& source, const std::string& cause) {
  throw Error(ErrorCode::kConfig,
              "cannot use model: " + source + ": " +
                  with_advice(cause, "correct it, or fetch the model's own config.json"));
}

// Advice for a model's JSON file that is not JSON, for example a web page saved in its place.
inline constexpr std::string_view kFetchAgain = "fetch the file again";

// The members of a text model in one config.json: those of one object, and those of a second object
// for members that the first lacks. Every failure is an Error (kConfig) that names the file and the
// member. The objects and `source` must outlive this.
class Fields {
 public:
  Fields(const config::Json& members, const config::Json& beside, const std::string& source)
      : members_(members), beside_(beside), source_(source) {}

  // Null members count as absent.
  const config::Json* find(const char* name) const {
    const config::Json* inner = present(members_.find(name));
    const config::Json* outer = present(beside_.find(name));
    if (inner != nullptr && outer != nullptr && inner->dump() != outer->dump()) {
      refuse(
          fmt::format("{}: is {} in text_config and {} beside it: which one is meant? (keep one)",
                      name, inner->dump(), outer->dump()));
    }
    return inner != nullptr ? inner : outer;
  }

  // Whether the member is present, including as null.
  bool has(const char* name) const {
    return members_.find(name) != nullptr || beside_.find(name) != nullptr;
  }

  std::optional<int64_t> optional_integer(const char* name) const {
    const config::Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    return integer_of(*value, name);
  }

  int64_t integer(const char* name) const {
    const auto value = optional_integer(name);
    if (!value)
      refuse(fmt::format("{}: missing (add it, or fetch the model's own config.json)", name));
    return *value;
  }

  double number(const char* name, double otherwise) const {
    const config::Json* value = find(name);
    return value == nullptr ? otherwise : number_of(*value, name);
  }

  bool boolean(const char* name, bool otherwise) const {
    const config::Json* value = find(name);
    return value == nullptr ? otherwise : boolean_of(*value, name);
  }

  std::string text(const char* name, const std::string& otherwise) const {
    const config::Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(name, "a string", *value);
    return value->string();
  }

  int64_t integer_of(const config::Json& value, const std::string& name) const {
    if (!value.int64()) wrong(name, "an integer", value);
    return *value.int64();
  }

  double number_of(const config::Json& value, const std::string& name) const {
    if (!value.number()) wrong(name, "a number", value);
    return *value.number();
  }

  bool boolean_of(const config::Json& value, const std::string& name) const {
    if (!value.boolean()) wrong(name, "true or false", value);
    return *value.boolean();
  }

  [[noreturn]] void wrong(const std::string& name, const char* wanted,
                          const config::Json& value) const {
    refuse(fmt::format("{}: is {}, must be {}", name, value.describe(), wanted));
  }
  [[noreturn]] void refuse(const std::string& cause) const { refuse_config(source_, cause); }

  const std::string& source() const { return source_; }

 private:
  static const config::Json* present(const config::Json* value) {
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  const config::Json& members_;
  const config::Json& beside_;
  const std::string& source_;
};

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::model {

[[noreturn]] inline void refuse_config(const std::string& source, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot use model: " + source + ": " + cause);
}

// The members of one config.json, looked up in text_config before the root. Every failure is an
// Error (kConfig) that names the file and the member. `root` and `source` must outlive this.
class Fields {
 public:
  Fields(const config::Json& root, const std::string& source) : root_(root), source_(source) {
    const config::Json* text = root.find("text_config");
    text_ = text != nullptr && text->is_object() ? text : &root;
  }

  // Null members count as absent.
  const config::Json* find(const char* name) const {
    for (const config::Json* place : {text_, &root_}) {
      const config::Json* value = place->find(name);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }

  // Present, be it as null.
  bool has(const char* name) const {
    return text_->find(name) != nullptr || root_.find(name) != nullptr;
  }

  std::optional<int64_t> optional_integer(const char* name) const {
    const config::Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    return integer_of(*value, name);
  }

  int64_t integer(const char* name) const {
    const auto value = optional_integer(name);
    if (!value) refuse(fmt::format("{}: missing (config.json must have it)", name));
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
  const config::Json& root_;
  const std::string& source_;
  const config::Json* text_;
};

}  // namespace strata::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::text {

// A JSON object of a tokenizer file, with the path to it for messages
// ("pre_tokenizer.pretokenizers[1]"). Every getter throws Error that names file and member when the
// value is missing or has another type.
class TokenizerFields {
 public:
  TokenizerFields(const config::Json& json, std::string source, std::string path);

  // Refuses members with other names.
  void allow(std::initializer_list<std::string_view> names) const;
  // Refuses a member that is present and neither null nor an empty text.
  void require_empty_text(std::string_view name) const;

  bool has(std::string_view name) const;  // present and not null
  bool is_text(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string_view otherwise) const;
  bool flag_or(std::string_view name, bool otherwise) const;
  int64_t integer(std::string_view name) const;
  const config::Json::Array& items(std::string_view name) const;
  const config::Json::Object& members(std::string_view name) const;
  const config::Json::Object& members() const { return json_.members(); }
  TokenizerFields object(std::string_view name) const;
  // Item `index` of the array member `name`, which must be an object.
  TokenizerFields item(std::string_view name, size_t index) const;

  std::string path_of(std::string_view name) const;
  // "read tokenizer: FILE: PATH: cause"
  Error error(std::string_view name, const std::string& cause) const;

 private:
  const config::Json& get(std::string_view name) const;

  const config::Json& json_;
  std::string source_;
  std::string path_;
};

}  // namespace strata::text

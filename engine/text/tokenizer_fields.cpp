// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/text/text_unicode.h"

namespace strata::text {

using config::Json;

TokenizerFields::TokenizerFields(const Json& json, std::string source, std::string path)
    : json_(json), source_(std::move(source)), path_(std::move(path)) {
  if (!json.is_object()) throw error("", fmt::format("is {}, not an object", json.describe()));
}

std::string TokenizerFields::path_of(std::string_view name) const {
  if (path_.empty()) return std::string(name);
  return name.empty() ? path_ : fmt::format("{}.{}", path_, name);
}

Error TokenizerFields::error(std::string_view name, const std::string& cause) const {
  std::string where = path_of(name);
  if (where.empty()) where = "the file";
  return Error(ErrorCode::kConfig, fmt::format("read tokenizer: {}: {}: {}", source_,
                                               replace_invalid_utf8(where), cause));
}

void TokenizerFields::allow(std::initializer_list<std::string_view> names) const {
  for (const config::JsonMember& member : json_.members()) {
    if (std::find(names.begin(), names.end(), member.name) == names.end()) {
      throw error(member.name, "not supported");
    }
  }
}

void TokenizerFields::require_empty_text(std::string_view name) const {
  if (has(name) && text(name) != "")
    throw error(name, fmt::format("'{}' is not supported", text(name)));
}

bool TokenizerFields::has(std::string_view name) const {
  const Json* value = json_.find(name);
  return value != nullptr && !value->is_null();
}

const Json& TokenizerFields::get(std::string_view name) const {
  const Json* value = json_.find(name);
  if (value == nullptr) throw error(name, "missing");
  return *value;
}

bool TokenizerFields::is_text(std::string_view name) const {
  return get(name).is_string();
}

std::string TokenizerFields::text(std::string_view name) const {
  const Json& value = get(name);
  if (!value.is_string()) throw error(name, fmt::format("is {}, not a string", value.describe()));
  return value.string();
}

std::string TokenizerFields::text_or(std::string_view name, std::string_view otherwise) const {
  return has(name) ? text(name) : std::string(otherwise);
}

bool TokenizerFields::flag_or(std::string_view name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const Json& value = get(name);
  if (!value.is_boolean()) throw error(name, fmt::format("is {}, not a boolean", value.describe()));
  return *value.boolean();
}

int64_t TokenizerFields::integer(std::string_view name) const {
  const Json& value = get(name);
  const std::optional<int64_t> integer = value.int64();
  if (!integer) throw error(name, fmt::format("is {}, not an integer", value.describe()));
  return *integer;
}

const Json::Array& TokenizerFields::items(std::string_view name) const {
  const Json& value = get(name);
  if (!value.is_array()) throw error(name, fmt::format("is {}, not an array", value.describe()));
  return value.items();
}

const Json::Object& TokenizerFields::members(std::string_view name) const {
  const Json& value = get(name);
  if (!value.is_object()) throw error(name, fmt::format("is {}, not an object", value.describe()));
  return value.members();
}

TokenizerFields TokenizerFields::object(std::string_view name) const {
  return TokenizerFields(get(name), source_, path_of(name));
}

TokenizerFields TokenizerFields::item(std::string_view name, size_t index) const {
  return TokenizerFields(items(name).at(index), source_,
                         fmt::format("{}[{}]", path_of(name), index));
}

}  // namespace strata::text

// SPDX-License-Identifier: Apache-2.0
#include "engine/config/json.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "engine/config/utf8.h"

namespace strata::config {
namespace {

void dump_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const char c = text[0];
    size_t used = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else if (const size_t length = utf8_length(text); length > 0) {
      out += text.substr(0, length);
      used = length;
    } else {
      out += "\xef\xbf\xbd";
    }
    text.remove_prefix(used);
  }
  out += '"';
}

void dump_double(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void new_line(std::string& out, int indent, int level) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
}

}  // namespace

std::string Json::describe() const {
  if (is_object()) return "an object";
  if (is_array()) return "an array";
  if (is_string()) return "the string " + dump();
  return dump();
}

std::optional<bool> Json::boolean() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  return std::nullopt;
}

std::optional<int64_t> Json::int64() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) {
    if (*value <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(*value);
  }
  if (const double* value = std::get_if<double>(&value_)) {
    if (*value >= -0x1p63 && *value < 0x1p63 && *value == std::floor(*value)) {
      return static_cast<int64_t>(*value);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> Json::uint64() const {
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) {
    if (*value >= 0) return static_cast<uint64_t>(*value);
  }
  if (const double* value = std::get_if<double>(&value_)) {
    if (*value >= 0 && *value < 0x1p64 && *value == std::floor(*value)) {
      return static_cast<uint64_t>(*value);
    }
  }
  return std::nullopt;
}

std::optional<double> Json::number() const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  return std::nullopt;
}

const Json* Json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : members()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

void Json::set(std::string_view name, Json value) {
  if (is_null()) *this = object();
  for (JsonMember& member : members()) {
    if (member.name == name) {
      member.value = std::move(value);
      return;
    }
  }
  members().push_back({std::string(name), std::move(value)});
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  items().push_back(std::move(value));
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_to(out, indent, 0);
  return out;
}

void Json::dump_to(std::string& out, int indent, int level) const {
  if (is_null()) {
    out += "null";
  } else if (const bool* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else if (is_string()) {
    dump_string(string(), out);
  } else if (const double* value = std::get_if<double>(&value_)) {
    dump_double(*value, out);
  } else if (is_integer()) {
    out += int64() ? fmt::format("{}", *int64()) : fmt::format("{}", *uint64());
  } else if (is_array()) {
    out += '[';
    for (size_t i = 0; i < items().size(); ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      new_line(out, indent, level + 1);
      items()[i].dump_to(out, indent, level + 1);
    }
    if (!items().empty()) new_line(out, indent, level);
    out += ']';
  } else {
    out += '{';
    for (size_t i = 0; i < members().size(); ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      new_line(out, indent, level + 1);
      dump_string(members()[i].name, out);
      out += ": ";
      members()[i].value.dump_to(out, indent, level + 1);
    }
    if (!members().empty()) new_line(out, indent, level);
    out += '}';
  }
}

}  // namespace strata::config

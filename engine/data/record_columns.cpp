// SPDX-License-Identifier: Apache-2.0
#include "engine/data/record_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/nearest_name.h"

namespace strata::data {
namespace {

using config::Json;

constexpr std::array<std::string_view, 15> kNames = {
    "text",  "prompt",        "completion", "messages", "instruction", "input", "output", "system",
    "tools", "conversations", "role",       "content",  "from",        "value", "history"};
constexpr std::array<std::string_view, 4> kOfMessages = {"role", "content", "from", "value"};
constexpr std::array<std::string_view, 4> kLists = {"messages", "conversations", "prompt",
                                                    "completion"};

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Error bad_columns(const std::string& given, const std::string& cause) {
  return Error(ErrorCode::kUsage, fmt::format("columns: {}: {}", given, cause));
}

}  // namespace

RecordColumns RecordColumns::parse(const std::vector<std::string>& given) {
  RecordColumns columns;
  for (const std::string& one : given) {
    const size_t equals = one.find('=');
    const std::string ours = one.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == one.size()) {
      throw bad_columns(one, "not a pair of names (write prompt=NAME, NAME being the records')");
    }
    if (!is_among(kNames, ours)) {
      throw bad_columns(
          one, fmt::format(
                   "{} is not read from records{}", ours,
                   config::did_you_mean(config::nearest_name(ours, kNames),
                                        fmt::format("give one of {}", fmt::join(kNames, ", ")))));
    }
    if (columns.names(ours)) throw bad_columns(one, ours + " is given twice (keep one)");
    columns.columns_.push_back({ours, one.substr(equals + 1), is_among(kOfMessages, ours)});
  }
  return columns;
}

bool RecordColumns::names(std::string_view member) const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [&](const Column& column) { return column.ours == member; });
}

std::string_view RecordColumns::theirs(std::string_view member) const {
  for (const Column& column : columns_) {
    if (column.ours == member) return column.theirs;
  }
  return member;
}

Json RecordColumns::renamed(Json object, bool of_message) const {
  Json result = Json::object();
  for (config::JsonMember& member : std::move(object).members()) {
    const auto column = std::find_if(columns_.begin(), columns_.end(), [&](const Column& each) {
      return each.is_of_message == of_message && each.theirs == member.name;
    });
    if (column == columns_.end() && names(member.name)) continue;
    if (column != columns_.end()) member.name = column->ours;
    result.members().push_back(std::move(member));
  }
  return result;
}

Json RecordColumns::renamed(Json record) const {
  if (columns_.empty() || !record.is_object()) return record;
  record = renamed(std::move(record), false);
  for (config::JsonMember& member : record.members()) {
    if (!is_among(kLists, member.name) || !member.value.is_array()) continue;
    for (Json& message : member.value.items()) {
      if (message.is_object()) message = renamed(std::move(message), true);
    }
  }
  return record;
}

void RecordColumns::require(const Json& record, const std::string& where) const {
  if (!record.is_object()) return;
  for (const Column& column : columns_) {
    if (column.is_of_message || record.find(column.theirs) != nullptr) continue;
    std::vector<std::string_view> members;
    for (const config::JsonMember& member : record.members()) members.push_back(member.name);
    throw Error(ErrorCode::kConfig,
                fmt::format("read data: {}: the record has no \"{}\", which --columns names as {} "
                            "(give one of {})",
                            where, column.theirs, column.ours, fmt::join(members, ", ")));
  }
}

}  // namespace strata::data

// SPDX-License-Identifier: Apache-2.0
#include "engine/config/config_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/config/option_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

const char* name_of(ImportFate fate) {
  static constexpr const char* kNames[] = {"became", "ignored", "refused"};
  return kNames[static_cast<int>(fate)];
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

void ImportWriter::ignore(const Leaf& leaf, std::string_view why) {
  import_.lines.push_back(
      {leaf.key, text_of(*leaf.value), ImportFate::kIgnored, "", std::string(why)});
}

void ImportWriter::refuse(const Leaf& leaf, std::string_view why) {
  import_.lines.push_back(
      {leaf.key, text_of(*leaf.value), ImportFate::kRefused, "", std::string(why)});
}

void ImportWriter::set(const Leaf& leaf, std::string_view option,
                       const std::vector<std::string>& values, std::string_view note) {
  Options scratch;
  const OptionRow& row = *find_option(option);
  const std::string cause = assign(row, values, scratch);
  if (!cause.empty()) {
    return refuse(leaf,
                  fmt::format("{} (it would be --{}: {})", cause, option, accepted_text(row)));
  }
  std::string shown;
  for (const std::string& value : values) shown += (shown.empty() ? "" : ",") + value;
  ImportLine line = {leaf.key, text_of(*leaf.value), ImportFate::kBecame,
                     fmt::format("--{} {}", option, shown), std::string(note)};
  if (const GivenOption* stronger = stronger_than(option)) mark_overridden(line, stronger->shown);
  import_.lines.push_back(std::move(line));
  import_.options.push_back({std::string(option), values, leaf.key});
}

void ImportWriter::mark_overridden(ImportLine& line, std::string_view by) {
  line.why = fmt::format("overridden by {} (it would be {})", by, line.text());
  line.became.clear();
  line.fate = ImportFate::kIgnored;
}

const GivenOption* ImportWriter::given_elsewhere(std::string_view option) const {
  const auto same = [&](const GivenOption& given) { return given.name == option; };
  const auto found = std::find_if(given_.rbegin(), given_.rend(), same);
  return found == given_.rend() ? nullptr : &*found;
}

const GivenOption* ImportWriter::stronger_than(std::string_view option) const {
  if (const GivenOption* same = given_elsewhere(option)) return same;
  for (const auto& [first, second, reason] : exclusive_options()) {
    if (option == first) return given_elsewhere(second);
    if (option == second) return given_elsewhere(first);
  }
  return nullptr;
}

std::string ImportLine::text() const {
  return became + (became.empty() || why.empty() ? "" : ": ") + why;
}

bool ConfigImport::is_refused() const {
  return std::ranges::any_of(
      lines, [](const ImportLine& line) { return line.fate == ImportFate::kRefused; });
}

std::string import_report(const ConfigImport& import, const std::string& path) {
  size_t key_width = 3;
  size_t value_width = 5;
  constexpr size_t kValueWidthMax = 24;
  for (const ImportLine& line : import.lines) {
    key_width = std::max(key_width, line.key.size());
    value_width = std::max(value_width, std::min(kValueWidthMax, line.value.size()));
  }
  std::string text = "What became of " + path + ":\n";
  for (const ImportLine& line : import.lines) {
    const std::string fate =
        line.fate == ImportFate::kBecame ? "" : name_of(line.fate) + std::string(": ");
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<{}}  {}{}\n", line.key, key_width,
                   line.value, value_width, fate, line.text());
  }
  return text;
}

Json import_json(const ConfigImport& import) {
  Json items = Json::array();
  for (const ImportLine& line : import.lines) {
    Json item = Json::object();
    item.set("key", line.key);
    item.set("value", line.value);
    item.set("fate", name_of(line.fate));
    item.set("became", text_or_null(line.became));
    item.set("why", text_or_null(line.why));
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace strata::config

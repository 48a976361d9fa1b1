// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/config/deepspeed.h"
#include "engine/config/json.h"

namespace strata::config {
namespace {

const char* name_of(ImportFate fate) {
  return fate == ImportFate::kBecame    ? "became"
         : fate == ImportFate::kIgnored ? "ignored"
                                        : "refused";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string ImportLine::text() const {
  if (became.empty() || why.empty()) return became + why;
  return became + ": " + why;
}

Json import_json(const DeepspeedImport& import) {
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

bool DeepspeedImport::is_refused() const {
  return std::any_of(lines.begin(), lines.end(),
                     [](const ImportLine& line) { return line.fate == ImportFate::kRefused; });
}

std::string import_table(const DeepspeedImport& import) {
  size_t key_width = 3;
  size_t value_width = 5;
  constexpr size_t kValueWidthMax = 24;
  for (const ImportLine& line : import.lines) {
    key_width = std::max(key_width, line.key.size());
    value_width = std::max(value_width, std::min(kValueWidthMax, line.value.size()));
  }
  std::string text;
  for (const ImportLine& line : import.lines) {
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<{}}  {}{}\n", line.key, key_width,
                   line.value, value_width,
                   line.fate == ImportFate::kBecame ? "" : std::string(name_of(line.fate)) + ": ",
                   line.text());
  }
  return text;
}

std::string import_report(const DeepspeedImport& import, const std::string& path) {
  return "What became of " + path + ":\n" + import_table(import);
}

}  // namespace strata::config

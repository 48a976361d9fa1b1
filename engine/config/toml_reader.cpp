// SPDX-License-Identifier: Apache-2.0
#include "engine/config/toml_reader.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <cstdio>
#include <memory>

#include "engine/base/error.h"

namespace strata::config {
namespace {

[[noreturn]] void refuse(std::string_view name, const toml::source_region& source,
                         const std::string& cause) {
  throw Error(ErrorCode::kConfig, fmt::format("cannot read TOML: {}:{}:{}: {}", name,
                                              source.begin.line, source.begin.column, cause));
}

std::string scalar_text(std::string_view name, const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  refuse(name, node.source(), "dates, times and nested values are not used here");
}

void read_table(std::string_view name, const toml::table& table, const std::string& table_name,
                int table_index, std::vector<TomlEntry>& entries) {
  for (const auto& [key, node] : table) {
    const auto& source = node.source();
    TomlEntry entry{
        .table = table_name,
        .table_index = table_index,
        .key = std::string(key.str()),
        .values = {},
        .where = fmt::format("{}:{}:{}", name, key.source().begin.line, key.source().begin.column)};
    const toml::array* array = node.as_array();
    if (const toml::table* inner = node.as_table()) {
      if (!table_name.empty()) refuse(name, source, "a table inside a table is not used here");
      read_table(name, *inner, entry.key, -1, entries);
    } else if (array != nullptr && !array->empty() && array->is_homogeneous<toml::table>()) {
      if (!table_name.empty()) refuse(name, source, "a table inside a table is not used here");
      int index = 0;
      for (const toml::node& element : *array) {
        read_table(name, *element.as_table(), entry.key, index++, entries);
      }
    } else {
      if (array != nullptr) {
        for (const toml::node& part : *array) entry.values.push_back(scalar_text(name, part));
      } else {
        entry.values.push_back(scalar_text(name, node));
      }
      entries.push_back(std::move(entry));
    }
  }
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, std::string_view name) {
  std::vector<TomlEntry> entries;
  try {
    read_table(name, toml::parse(text), "", -1, entries);
  } catch (const toml::parse_error& error) {
    refuse(name, error.source(), std::string(error.description()));
  }
  return entries;
}

std::string read_config_file(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rbe"), close);
  if (!file) throw system_error(ErrorCode::kConfig, "cannot open " + path, errno);
  std::string text(kBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    throw system_error(ErrorCode::kConfig, "cannot read " + path, errno);
  }
  if (text.size() > kBytesMax) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read {}: it has more than {} bytes (is it the right file?)",
                            path, kBytesMax));
  }
  return text;
}

}  // namespace strata::config

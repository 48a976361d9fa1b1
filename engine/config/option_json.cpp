// SPDX-License-Identifier: Apache-2.0
// Options as JSON, for run.json and for callers that configure by JSON text.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/config/list_text.h"
#include "engine/config/option_sources.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

Json value_json(const OptionRow& row, const Options& options) {
  const auto to_json = [&](const auto& field) -> Json {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, Betas Options::*>) {
      return Json::Array{(options.*field).first, (options.*field).second};
    } else if constexpr (std::is_same_v<Field, DriveLimits Options::*>) {
      const DriveLimits& limits = options.*field;
      return Json::Array{limits.read_bytes_per_s, limits.write_bytes_per_s};
    } else if constexpr (std::is_same_v<Field, std::vector<std::string> Options::*> ||
                         std::is_same_v<Field, std::vector<int64_t> Options::*>) {
      Json parts = Json::array();
      for (const auto& part : options.*field) parts.push_back(part);
      return parts;
    } else if constexpr (std::is_same_v<Field, EnumField> || std::is_same_v<Field, OptionalField>) {
      return value_text(row, options);
    } else {
      return Json(options.*field);
    }
  };
  return std::visit(to_json, row.field);
}

bool is_default(const OptionRow& row, const Options& options) {
  return value_text(row, options) == value_text(row, Options());
}

// Whether the option has its default and that value means "not set".
bool is_unset(const OptionRow& row, const Options& options) {
  const bool has_note = !row.unset_note.empty() || row.type == OptionType::kString;
  return has_note && is_default(row, options);
}

std::vector<std::string> option_texts(const Json& value, const OptionRow* row = nullptr) {
  if (value.is_string()) return {value.string()};
  const bool is_size = row != nullptr && row->type == OptionType::kSize;
  if (!value.is_array()) return {value.dump() + (is_size && value.int64() ? "B" : "")};
  std::vector<std::string> texts;
  for (const Json& item : value.items())
    texts.push_back(item.is_string() ? item.string() : item.dump());
  return as_array(row, std::move(texts));
}

Json groups_json(const std::vector<ParameterGroupOptions>& groups) {
  Json items = Json::array();
  for (const ParameterGroupOptions& group : groups) {
    Json item = Json::object();
    item.set("match", group.match);
    item.set("lr_factor", group.lr_factor);
    if (group.weight_decay) item.set("weight_decay", *group.weight_decay);
    item.set("frozen", group.frozen);
    items.push_back(std::move(item));
  }
  return items;
}

void collect_groups(const Json& groups, OptionCollector& collector) {
  if (!groups.is_array())
    return collector.problem("groups is not an array of objects (give [{\"match\": \"...\"}])");
  int index = 0;
  for (const Json& group : groups.items()) {
    if (!group.is_object())
      return collector.problem("groups is not an array of objects (give [{\"match\": \"...\"}])");
    collector.open_group(index);
    for (const JsonMember& member : group.members()) {
      collector.set_group(index, member.name, option_texts(member.value),
                          "groups[" + std::to_string(index) + "]." + member.name);
    }
    ++index;
  }
}

}  // namespace

std::string to_json(Command command, const Options& options) {
  Json object = Json::object();
  for (const OptionRow& row : option_table()) {
    if (!takes(row, command) || row.type == OptionType::kSwitch) continue;
    object.set(key_of(row), is_unset(row, options) ? Json() : value_json(row, options));
  }
  object.set("groups", groups_json(options.groups));
  return object.dump(2);
}

namespace {

// Options about one start of a run, not about the run.
constexpr std::string_view kOfTheStart[] = {"out",         "config",     "deepspeed",  "resume",
                                            "trace_steps", "trace_from", "collectives"};

void collect_json(SourceKind kind, std::string_view json, const std::string& source,
                  OptionCollector& collector) {
  const Json object = Json::parse(json, source);
  if (!object.is_object()) {
    throw Error(ErrorCode::kConfig, "cannot read options: the JSON text is " + object.describe() +
                                        " (give an object with options by name)");
  }
  for (const JsonMember& member : object.members()) {
    if (member.value.is_null()) continue;
    if (kind == SourceKind::kRun && std::ranges::count(kOfTheStart, member.name) > 0) continue;
    if (member.name == "groups") {
      if (kind == SourceKind::kRun && !collector.so_far().groups.empty()) continue;
      collector.clear_groups();
      collect_groups(member.value, collector);
      continue;
    }
    // An option whose value is set already, usually its default, means the same as when it is
    // absent, so it must not conflict with other options.
    const OptionRow* row = find_option(member.name);
    Options scratch;
    const std::vector<std::string> texts = option_texts(member.value, row);
    const bool changes = row == nullptr || !assign(*row, texts, scratch).empty() ||
                         value_text(*row, scratch) != value_text(*row, collector.so_far());
    if (changes) {
      const std::string shown =
          kind == SourceKind::kRun ? source + ": " + member.name : member.name;
      collector.set(kind, member.name, texts, shown);
    }
  }
}

}  // namespace

void collect_run(const RunOptions& run, OptionCollector& collector) {
  if (!run.json.empty()) collect_json(SourceKind::kRun, run.json, run.source, collector);
  if (!run.out.empty()) collector.set(SourceKind::kRun, "out", {run.out}, run.source);
}

Options options_from_json(Command command, std::string_view json, const FindRunOptions& run) {
  OptionCollector given(command);
  collect_json(SourceKind::kFile, json, "options", given);
  if (!run) return given.finish();
  OptionCollector collector(command);
  collect_run(run(given.given_so_far()), collector);
  collect_json(SourceKind::kFile, json, "options", collector);
  return collector.finish();
}

}  // namespace strata::config

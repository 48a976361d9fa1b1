// SPDX-License-Identifier: Apache-2.0
#include "engine/config/foreign_datasets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace strata::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kToLines =
    "download it and write it as JSONL: examples/to_jsonl.py does that";

constexpr std::string_view kOtherPrompt =
    "instructions have no words around them here, where Axolotl writes \"Below is an instruction "
    "...\"; write records of prompt and completion to have these";

struct NamePair {
  std::string_view theirs;
  std::string_view ours;
};

std::string text_member(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? value->string() : "";
}

// What an entry names the members of its records.
using Columns = std::vector<std::string>;

// Names columns for the members of `object` that `names` lists, except for those that have our name
// already.
void add_columns(const Json& object, std::span<const NamePair> names, Columns& columns) {
  for (const NamePair& pair : names) {
    const std::string column = text_member(object, pair.theirs);
    if (column.empty() || column == pair.ours) continue;
    std::string text = fmt::format("{}={}", pair.ours, column);
    if (std::find(columns.begin(), columns.end(), text) == columns.end()) {
      columns.push_back(std::move(text));
    }
  }
}

// One --columns is for all files.
void set_columns(const std::vector<Columns>& entries, ForeignData& data) {
  const auto text_of_columns = [](const Columns& columns) {
    return columns.empty() ? "the usual columns" : fmt::format("{}", fmt::join(columns, ", "));
  };
  for (const Columns& columns : entries) {
    if (!std::ranges::is_permutation(columns, entries.front())) {
      data.refusal = fmt::format("the entries name {} and {} (give them the same columns)",
                                 text_of_columns(entries.front()), text_of_columns(columns));
    }
  }
  if (!entries.empty()) data.columns = entries.front();
}

constexpr NamePair kAxolotlColumns[] = {{"field_messages", "messages"},
                                        {"field_instruction", "instruction"},
                                        {"field_input", "input"},
                                        {"field_output", "output"},
                                        {"field_system", "system"},
                                        {"field_tools", "tools"},
                                        {"field", "text"},
                                        {"message_field_role", "role"},
                                        {"message_field_content", "content"}};
constexpr NamePair kMessageNames[] = {{"role", "role"}, {"content", "content"}};
constexpr std::array<std::string_view, 23> kAxolotlKeys = {"path",
                                                           "type",
                                                           "ds_type",
                                                           "split",
                                                           "data_files",
                                                           "name",
                                                           "field_messages",
                                                           "field_instruction",
                                                           "field_input",
                                                           "field_output",
                                                           "field_system",
                                                           "field_tools",
                                                           "field",
                                                           "roles_to_train",
                                                           "train_on_eos",
                                                           "train_on_eot",
                                                           "message_field_role",
                                                           "message_field_content",
                                                           "message_field_training",
                                                           "message_property_mappings",
                                                           "chat_template",
                                                           "roles",
                                                           "trust_remote_code"};
constexpr std::array<std::string_view, 6> kAxolotlTypes = {"chat_template", "alpaca", "completion",
                                                           "sharegpt",      "text",   ""};

// Whether what `roles` maps to a role are the names that records may have for it anyway.
bool are_usual_roles(const Json& roles) {
  constexpr NamePair kUsual[] = {{"human", "user"}, {"gpt", "assistant"}};
  const auto is_usual = [&](const std::string& theirs, const std::string& ours) {
    const auto same = [&](const NamePair& pair) {
      return pair.theirs == theirs && pair.ours == ours;
    };
    return theirs == ours || std::any_of(std::begin(kUsual), std::end(kUsual), same);
  };
  if (!roles.is_object()) return false;
  return std::all_of(roles.members().begin(), roles.members().end(), [&](const JsonMember& role) {
    const std::vector<std::string> names = texts_of(role.value);
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return is_usual(name, role.name); });
  });
}

std::string split_refusal(const Json& entry) {
  const std::string split = text_member(entry, "split");
  if (split.empty() || split == "train") return "";
  return fmt::format(
      "split: {}: whole files are read (take it out, and name the file of that split)", split);
}

// What of an entry says how its records are used and cannot be followed.
std::string axolotl_use_refusal(const Json& entry) {
  if (std::string split = split_refusal(entry); !split.empty()) return split;
  const std::string chat_template = text_member(entry, "chat_template");
  if (!chat_template.empty() && chat_template != "tokenizer_default") {
    return fmt::format(
        "chat_template: {}: all data has one template (take it out, and give "
        "chat_template outside of datasets)",
        chat_template);
  }
  const Json* roles = entry.find("roles");
  if (roles != nullptr && !roles->is_null() && !are_usual_roles(*roles)) {
    return "roles: only human for user and gpt for assistant are known (rename the others in the "
           "data, and take it out)";
  }
  return "";
}

// What of an entry cannot be followed; empty when all can.
std::string axolotl_refusal(const Json& entry) {
  if (!entry.is_object()) return "an entry is not a map (give path and type)";
  for (const JsonMember& member : entry.members()) {
    if (std::find(kAxolotlKeys.begin(), kAxolotlKeys.end(), member.name) == kAxolotlKeys.end()) {
      return fmt::format("{} is not supported (take it out)", member.name);
    }
  }
  const Json* type = entry.find("type");
  const std::string name = text_member(entry, "type");
  const std::string_view base = std::string_view(name).substr(0, name.find_first_of(".:"));
  const bool is_known =
      std::find(kAxolotlTypes.begin(), kAxolotlTypes.end(), base) != kAxolotlTypes.end();
  if ((type != nullptr && !type->is_string()) || !is_known) {
    return fmt::format("the type {} is not known (give chat_template, alpaca or completion)",
                       type == nullptr ? "" : text_of(*type));
  }
  if (const Json* roles = entry.find("roles_to_train")) {
    if (roles->is_array() && roles->items().empty()) {
      return "roles_to_train: empty: here a message without \"train\" is learned if it is the "
             "assistant's (give [assistant], and \"train\": false to the others)";
    }
    for (const std::string& role : texts_of(*roles)) {
      if (role == "assistant" || role == "gpt") continue;
      return fmt::format(
          "roles_to_train: {}: only what the assistant says is learned, or with "
          "--train-on everything all (leave the role out)",
          role);
    }
  }
  for (const char* end : {"train_on_eos", "train_on_eot"}) {
    const std::string which = text_member(entry, end);
    if (which == "last" || which == "all") {
      return fmt::format("{}: {} is not supported (give turn or none)", end, which);
    }
  }
  const std::string training = text_member(entry, "message_field_training");
  if (!training.empty() && training != "train" && training != "weight") {
    return fmt::format(
        "message_field_training: {}: only train and weight are read (rename it in the data)",
        training);
  }
  return axolotl_use_refusal(entry);
}

void add_axolotl_paths(const Json& entry, ForeignData& data) {
  const std::string path = text_member(entry, "path");
  const Json* files = entry.find("data_files");
  if (files == nullptr || files->is_null()) {
    data.paths.push_back(path);
    return;
  }
  std::error_code ignored;
  const bool is_local = fs::is_directory(path, ignored);
  for (const std::string& file : texts_of(*files)) {
    data.paths.push_back(is_local ? path + "/" + file : file);
  }
}

void require_local(ForeignData& data) {
  for (const std::string& path : data.paths) {
    std::error_code ignored;
    if (!data.refusal.empty() || fs::exists(path, ignored)) continue;
    data.refusal = fmt::format("{} is no local file or directory ({})", path, kToLines);
  }
}

}  // namespace

ForeignData axolotl_data(const Json& list) {
  ForeignData data;
  std::vector<Columns> entries;
  const Json::Array single = {list};
  data.is_text = true;
  for (const Json& entry : list.is_array() ? list.items() : single) {
    data.refusal = axolotl_refusal(entry);
    if (!data.refusal.empty()) return data;
    add_axolotl_paths(entry, data);
    const std::string type = text_member(entry, "type");
    if (type.starts_with("alpaca")) data.note = kOtherPrompt;
    data.is_text &= type.starts_with("completion") || type.starts_with("text");
    Columns& columns = entries.emplace_back();
    add_columns(entry, kAxolotlColumns, columns);
    if (const Json* names = entry.find("message_property_mappings")) {
      add_columns(*names, kMessageNames, columns);
    }
    for (const char* name : {"train_on_eos", "train_on_eot"}) {
      const Json* end = entry.find(name);
      if (end != nullptr && (is_off(*end) || text_of(*end) == "none")) data.train_on_end = "off";
    }
  }
  set_columns(entries, data);
  require_local(data);
  return data;
}

namespace {

constexpr NamePair kAlpacaColumns[] = {{"prompt", "instruction"},
                                       {"query", "input"},
                                       {"response", "output"},
                                       {"system", "system"},
                                       {"history", "history"}};
constexpr NamePair kShareGptColumns[] = {
    {"messages", "conversations"}, {"system", "system"}, {"tools", "tools"}};
constexpr NamePair kShareGptTags[] = {{"role_tag", "from"}, {"content_tag", "value"}};
constexpr NamePair kChatColumns[] = {
    {"messages", "messages"}, {"system", "system"}, {"tools", "tools"}};
constexpr NamePair kChatTags[] = {{"role_tag", "role"}, {"content_tag", "content"}};
constexpr std::array<std::string_view, 10> kInfoKeys = {
    "file_name",   "formatting", "columns",    "tags",       "split",
    "num_samples", "ranking",    "hf_hub_url", "ms_hub_url", "script_url"};

const Json& part_of(const Json& entry, const char* name) {
  static const Json none = Json::object();
  const Json* value = entry.find(name);
  return value == nullptr ? none : *value;
}

// What the columns of an entry are named for; those of messages as OpenAI writes them need no other
// names.
std::span<const NamePair> columns_of(const Json& entry) {
  const std::string formatting = text_member(entry, "formatting");
  const Json& tags = part_of(entry, "tags");
  // Without names of its own, an entry has ShareGPT's whatever its formatting is.
  if (formatting == "openai" && !tags.members().empty()) return kChatColumns;
  if (formatting != "sharegpt" && formatting != "openai") return kAlpacaColumns;
  const bool is_chat = text_member(part_of(entry, "columns"), "messages") == "messages" &&
                       text_member(tags, "role_tag") == "role" &&
                       text_member(tags, "content_tag") == "content";
  if (is_chat) return kChatColumns;
  return kShareGptColumns;
}

std::string info_refusal(const std::string& name, const Json& entry) {
  if (!entry.is_object()) return name + " is not a map (give it a file_name)";
  for (const JsonMember& member : entry.members()) {
    if (std::find(kInfoKeys.begin(), kInfoKeys.end(), member.name) == kInfoKeys.end()) {
      return fmt::format("{}: {} is not supported (take it out)", name, member.name);
    }
  }
  const std::string formatting = text_member(entry, "formatting");
  if (entry.find("formatting") != nullptr && formatting != "alpaca" && formatting != "sharegpt" &&
      formatting != "openai") {
    return fmt::format("{}: the formatting {} is not known (give alpaca, sharegpt or openai)", name,
                       text_of(*entry.find("formatting")));
  }
  const std::string split = split_refusal(entry);
  if (!split.empty()) return name + ": " + split;
  const Json* ranking = entry.find("ranking");
  if (ranking != nullptr && !is_off(*ranking)) {
    return name +
           ": only supervised training is supported, not preference training (give other data)";
  }
  if (text_member(entry, "file_name").empty()) {
    return fmt::format("{} has no file_name ({})", name, kToLines);
  }
  if (const Json* columns = entry.find("columns")) {
    for (const char* media : {"images", "videos", "audios"}) {
      if (columns->find(media) != nullptr) {
        return fmt::format("{}: {} are not supported (give other data)", name, media);
      }
    }
  }
  const Json* count = entry.find("num_samples");
  if (count != nullptr && !count->is_null()) {
    return name + ": num_samples: give a file with as many records (head -n makes one)";
  }
  return "";
}

bool is_record_file(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

// As data is read: of a directory with texts, apart from a README, only these are.
bool holds_records(const std::string& given) {
  std::error_code ignored;
  const fs::path path = fs::exists(given, ignored) ? given : given.substr(0, given.rfind(':'));
  if (!fs::is_directory(path, ignored)) return is_record_file(path);
  if (fs::exists(path / "train.jsonl", ignored)) return true;
  bool has_records = false;
  for (fs::recursive_directory_iterator file(path, ignored), end; file != end;
       file.increment(ignored)) {
    const fs::path& name = file->path();
    const bool is_text = name.extension() == ".txt" || name.extension() == ".md";
    if (is_text && name.stem() != "README") return false;
    has_records |= is_record_file(name);
  }
  return has_records;
}

}  // namespace

ForeignData llama_factory_data(const std::string& names, const std::string& directory,
                               const ReadNamedFile& read) {
  const std::string path = directory + "/dataset_info.json";
  const Json info = Json::parse(read(path), path);
  ForeignData data;
  std::vector<Columns> entries;
  for (size_t at = 0; at <= names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    std::string name = names.substr(at, comma - at);
    at = comma + 1;
    std::erase(name, ' ');
    const Json* entry = info.find(name);
    if (entry == nullptr) {
      data.refusal = fmt::format("{} has no \"{}\" (add it there, or give --data)", path, name);
      return data;
    }
    data.refusal = info_refusal(name, *entry);
    if (!data.refusal.empty()) return data;
    data.paths.push_back(directory + "/" + text_member(*entry, "file_name"));
    const std::span<const NamePair> names_of_kind = columns_of(*entry);
    Columns& columns = entries.emplace_back();
    add_columns(part_of(*entry, "columns"), names_of_kind, columns);
    if (names_of_kind.data() == kShareGptColumns)
      add_columns(part_of(*entry, "tags"), kShareGptTags, columns);
    if (names_of_kind.data() == kChatColumns)
      add_columns(part_of(*entry, "tags"), kChatTags, columns);
  }
  set_columns(entries, data);
  require_local(data);
  return data;
}

void add_weights(std::string_view weights, ForeignData& data) {
  for (std::string& path : data.paths) {
    const size_t comma = std::min(weights.find(','), weights.size());
    if (comma == 0) {
      data.refusal = "interleave_probs has fewer numbers than there are datasets (give as many)";
      return;
    }
    path += ":" + std::string(weights.substr(0, comma));
    weights.remove_prefix(std::min(weights.size(), comma + 1));
  }
  if (weights.empty()) return;
  data.refusal = "interleave_probs has more numbers than there are datasets (give as many)";
}

bool are_record_files(const std::vector<std::string>& paths) {
  return !paths.empty() && std::ranges::all_of(paths, holds_records);
}

}  // namespace strata::config

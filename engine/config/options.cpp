// SPDX-License-Identifier: Apache-2.0
#include "engine/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/advice.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/config/config_file.h"
#include "engine/config/deepspeed.h"
#include "engine/config/foreign_import.h"
#include "engine/config/option_sources.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"
#include "engine/config/toml_reader.h"
#include "engine/config/yaml_reader.h"

namespace strata::config {

double Options::peak_lr() const {
  if (lr_scaling == LrScaling::kNone) return lr;
  const double factor = static_cast<double>(step_samples()) / static_cast<double>(lr_batch);
  return lr * (lr_scaling == LrScaling::kLinear ? factor : std::sqrt(factor));
}

namespace {

bool is_flag(const std::string& text) {
  return text.starts_with("--");
}

// A flag among the arguments.
struct Flag {
  std::string shown;                 // "--lr"
  std::optional<std::string> value;  // after its =
  bool has_next = false;             // the next argument could be its value

  std::string name() const { return shown.substr(2); }
};

Flag flag_at(std::span<const std::string> args, size_t at) {
  const size_t equals = args[at].find('=');
  Flag flag = {args[at].substr(0, equals), {}, at + 1 < args.size() && !is_flag(args[at + 1])};
  if (equals != std::string::npos) flag.value = args[at].substr(equals + 1);
  return flag;
}

// Options that only flags can give: --config would read another file, and --help prints and ends.
constexpr std::string_view kFlagsOnly[] = {"config", "help"};

using Places = std::map<const OptionRow*, std::string>;

// Collects a key at the top of the file. `places` records where options were given, because to TOML
// host-memory and host_memory are two different keys.
void collect_toml_option(const TomlEntry& entry, Places& places, OptionCollector& collector) {
  const std::string shown = entry.where + ": " + entry.key;
  if (std::ranges::find(kFlagsOnly, entry.key) != std::end(kFlagsOnly)) {
    return collector.problem(fmt::format(
        "{} cannot be given in a file (give --{} on the command line)", shown, entry.key));
  }
  if (const OptionRow* row = find_option(entry.key)) {
    const auto [place, is_new] = places.emplace(row, entry.where);
    if (!is_new) {
      return collector.problem(
          fmt::format("{} is given twice (keep one: {} has it too)", shown, place->second));
    }
  }
  collector.set(SourceKind::kFile, entry.key, entry.values, shown);
}

// The text of the --config file when it is ours; a YAML file is another program's.
std::string_view toml_of(const OptionSources& sources) {
  return is_yaml_name(sources.toml_name) ? std::string_view() : sources.toml;
}

void collect_toml(const OptionSources& sources, OptionCollector& collector) {
  Places places;
  for (const TomlEntry& entry : read_toml(toml_of(sources), sources.toml_name)) {
    const std::string shown = entry.where + ": " + entry.key;
    const bool in_group = entry.table == "group" && entry.table_index >= 0;
    if (entry.table.empty()) {
      collect_toml_option(entry, places, collector);
    } else if (in_group && entry.is_empty_table) {
      collector.open_group(entry.table_index);
    } else if (in_group) {
      collector.set_group(entry.table_index, entry.key, entry.values, shown);
    } else if (entry.is_empty_table) {
      collector.problem(
          fmt::format("{}: the table {} is not supported (move its keys to the beginning of the "
                      "file; [[group]] is the only table)",
                      entry.where, entry.table));
    } else {
      collector.problem(shown + " is in the table " + entry.table +
                        ", which is not supported (move its keys to the beginning of the file; "
                        "[[group]] is the only table)");
    }
  }
}

// The options that the file and then the flags give, with the names of the table. Errors are
// reported later, when the options are collected.
std::vector<GivenOption> given_options(std::span<const std::string> args, std::string_view toml,
                                       std::string_view toml_name) {
  std::vector<GivenOption> given;
  for (const TomlEntry& entry : read_toml(toml, toml_name)) {
    const OptionRow* row = entry.table.empty() ? find_option(entry.key) : nullptr;
    if (row == nullptr) continue;
    const std::string text = entry.values.size() == 1 ? entry.values[0] : "";
    given.push_back({std::string(row->name), text, entry.where + ": " + entry.key});
  }
  for (size_t at = 0; at < args.size(); ++at) {
    if (!is_flag(args[at])) continue;
    const Flag flag = flag_at(args, at);
    const OptionRow* row = find_option(flag.name());
    if (row == nullptr) continue;
    given.push_back({std::string(row->name),
                     flag.value.value_or(flag.has_next ? args[at + 1] : std::string()),
                     flag.shown});
  }
  return given;
}

// The value given for an option that decides how others are read; empty when none is given.
std::string early_value(std::string_view name, std::span<const GivenOption> given) {
  std::string text;
  for (const GivenOption& one : given) {
    if (one.name == name) text = one.text;
  }
  return text;
}

ConfigImport import_from(const OptionSources& sources) {
  const auto given = given_options(sources.args, toml_of(sources), sources.toml_name);
  // A value that is not a number is reported where the option itself is read.
  const int64_t ranks = parse_whole_number(early_value("ranks", given)).value_or(1);
  return import_deepspeed(sources.deepspeed, std::string(sources.deepspeed_name), ranks, given);
}

ConfigImport import_yaml(const OptionSources& sources) {
  return import_foreign(
      sources.toml, std::string(sources.toml_name),
      [](const std::string& path) { return read_config_file(path); },
      given_options(sources.args, "", ""));
}

void collect_import(const ConfigImport& import, const std::string& name,
                    OptionCollector& collector) {
  for (const ImportLine& line : import.lines) {
    if (line.fate != ImportFate::kRefused) continue;
    collector.problem(name + ": " + line.key + " \"" + line.value +
                      "\": " + with_advice(line.why, "take the key out of the file"));
  }
  for (const ImportedOption& option : import.options) {
    collector.set(SourceKind::kImport, option.name, option.values, name + ": " + option.key);
  }
}

// The option that an argument names with one dash, or with a long one as web pages have them; null
// where it names none.
const OptionRow* misdashed(std::string_view argument) {
  size_t dashes = 0;
  for (const std::string_view dash : {"\u2014", "\u2013", "-"}) {
    while (argument.starts_with(dash)) {
      argument.remove_prefix(dash.size());
      ++dashes;
    }
  }
  return dashes == 0 ? nullptr : find_option(argument.substr(0, argument.find('=')));
}

// The first of the command's main options that takes a text and is not given; null when all are.
const OptionRow* main_option_left(std::span<const std::string> args, Command command) {
  std::set<const OptionRow*> known;
  for (const std::string& arg : args) {
    if (is_flag(arg)) known.insert(find_option(arg.substr(2, arg.find('=', 2) - 2)));
  }
  if (known.contains(find_option("resume"))) known.insert(find_option("model"));  // that of the run
  constexpr size_t kMain = 3;
  std::vector<const OptionRow*> rows = main_options(command);
  rows.resize(std::min(rows.size(), kMain));
  for (const OptionRow* row : rows) {
    const bool is_text = row->type == OptionType::kString || row->type == OptionType::kList ||
                         row->type == OptionType::kTexts || row->type == OptionType::kOptional;
    if (is_text && !known.contains(row)) return row;
  }
  return nullptr;
}

// What to do about args[at], which belongs to no flag.
std::string stray_advice(std::span<const std::string> args, size_t at, Command command) {
  size_t last = at;
  while (last > 0 && !is_flag(args[last])) --last;
  const Flag flag = flag_at(args, last);
  const OptionRow* before = is_flag(flag.shown) ? find_option(flag.name()) : nullptr;
  if (const OptionRow* meant = misdashed(args[at])) return fmt::format("write --{}", meant->name);
  if (args[at].starts_with('-')) {
    return fmt::format("see strata {} --help for all options", name_of(command));
  }
  if (before != nullptr && before->type == OptionType::kSwitch) {
    return fmt::format("leave it out: --{} takes no value", before->name);
  }
  if (before != nullptr && before->type == OptionType::kOptional) {
    return fmt::format("--{} takes one value", before->name);
  }
  if (before != nullptr) {
    std::string words = flag.value.value_or("");
    for (size_t i = last + 1; i <= at; ++i) words += (words.empty() ? "" : " ") + args[i];
    if (before->metavar == "TEXT" || std::filesystem::exists(words)) {
      return "quote values that contain spaces";
    }
    if (takes_several(*before)) {
      return fmt::format("join several values by commas: --{} {},{}", before->name,
                         at - 1 == last ? *flag.value : args[at - 1], args[at]);
    }
  }
  const OptionRow* meant = main_option_left(args, command);
  if (meant == nullptr) return fmt::format("see strata {} --help", name_of(command));
  return fmt::format("each value needs the name of its option, such as --{} {}", meant->name,
                     args[at]);
}

void collect_args(std::span<const std::string> args, Command command, OptionCollector& collector) {
  for (size_t at = 0; at < args.size(); ++at) {
    if (!is_flag(args[at])) {
      collector.problem(fmt::format("unexpected argument \"{}\" ({})", args[at],
                                    stray_advice(args, at, command)));
      const bool has_value = misdashed(args[at]) != nullptr && at + 1 < args.size();
      if (has_value && !is_flag(args[at + 1])) ++at;  // probably its value
      continue;
    }
    const Flag flag = flag_at(args, at);
    const OptionRow* row = find_option(flag.name());
    const auto set = [&](const std::string& value) {
      collector.set(SourceKind::kFlag, flag.name(), {value}, flag.shown);
    };
    if (row == nullptr) {
      collector.unknown(flag.name(), flag.shown, true);
      if (!flag.value && flag.has_next) ++at;  // probably its value
    } else if (flag.value) {
      set(*flag.value);
    } else if (row->type == OptionType::kSwitch) {
      set("on");
    } else if (flag.has_next) {
      set(args[++at]);
    } else if (row->type == OptionType::kOptional) {
      set("on");
    } else {
      collector.problem(fmt::format("{} needs a value (give {})", flag.shown,
                                    accepted_text(row_for(*row, command))));
    }
  }
}

bool wants_help(std::span<const std::string> args) {
  return std::any_of(args.begin(), args.end(), [](const std::string& arg) {
    return arg == "--help" || arg == "-help" || arg == "-h";
  });
}

}  // namespace

Options resolve(Command command, const OptionSources& sources, DeepspeedReport* report) {
  if (wants_help(sources.args)) {
    Options options;
    options.help = true;
    return options;
  }
  OptionCollector collector(command);
  std::vector<std::pair<std::string, ConfigImport>> imports;
  if (!sources.deepspeed_name.empty()) {
    imports.emplace_back(sources.deepspeed_name, import_from(sources));
  }
  if (is_yaml_name(sources.toml_name)) {
    imports.emplace_back(sources.toml_name, import_yaml(sources));
  }
  for (const auto& [name, import] : imports) collect_import(import, name, collector);
  collect_toml(sources, collector);
  collect_args(sources.args, command, collector);
  if (sources.run) collect_run(sources.run(collector.given_so_far()), collector);
  if (!imports.empty() && report != nullptr) {
    *report = {"", Json::array(), collector.so_far().json, false};
    for (const auto& [name, import] : imports) {
      report->table += import_report(import, name);
      for (const Json& line : import_json(import).items()) report->lines.push_back(line);
      report->is_refusal = report->is_refusal || import.is_refused();
    }
  }
  return collector.finish(sources.gpu);
}

Options resolve_command_line(Command command, std::span<const std::string> args,
                             DeepspeedReport* report, const FindRunOptions& run,
                             const FindGpu& gpu) {
  if (wants_help(args)) return resolve(command, {.args = args});
  const std::string config = early_value("config", given_options(args, "", ""));
  Failures failures;
  std::string toml;
  if (!config.empty()) failures.collect([&] { toml = read_config_file(config); });
  const bool imports = takes(*find_option("deepspeed"), command);
  const std::string import =
      imports
          ? early_value("deepspeed", given_options(args, is_yaml_name(config) ? "" : toml, config))
          : "";
  std::string deepspeed;
  if (!import.empty()) failures.collect([&] { deepspeed = read_config_file(import); });
  failures.throw_if_any("cannot read files with options");
  return resolve(command,
                 {.run = run,
                  .toml = toml,
                  .toml_name = config,
                  .deepspeed = deepspeed,
                  .deepspeed_name = import,
                  .args = args,
                  .gpu = gpu},
                 report);
}

}  // namespace strata::config

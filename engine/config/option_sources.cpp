// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/advice.h"
#include "engine/base/error.h"
#include "engine/config/foreign_rules.h"
#include "engine/config/idle_options.h"
#include "engine/config/mesh_option.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_rules.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

std::string commands_of(const OptionRow& row) {
  std::string text;
  for (int index = 0; index < kCommandCount; ++index) {
    const Command command = static_cast<Command>(index);
    if (takes(row, command)) text += (text.empty() ? "" : ", ") + std::string(name_of(command));
  }
  return text;
}

constexpr std::array<std::string_view, 4> kGroupKeys = {"match", "lr_factor", "weight_decay",
                                                        "frozen"};

}  // namespace

bool Options::is_given(std::string_view name) const {
  return std::find(given.begin(), given.end(), name) != given.end();
}

namespace {

// Why commands that train do not have an option of another program: the reason for which that
// program's file may not have the key, or is read without it. `exactly`: not by a prefix of it.
std::string_view reason_for(std::string_view name, Command command, bool exactly) {
  if (!takes(*find_option("deepspeed"), command)) return {};
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  for (const ForeignTool tool : {kTrl, kAxolotl, kLlamaFactory, kMlxLm}) {
    const ForeignRule* rule = find_rule(tool, key);
    if (rule == nullptr || (exactly && rule->key != key)) continue;
    if (rule->kind == RuleKind::kIgnore || rule->kind == RuleKind::kOff) return rule->text;
  }
  return {};
}

}  // namespace

OptionCollector::OptionCollector(Command command)
    : command_(command),
      kinds_(option_table().size(), SourceKind::kDefault),
      shown_(option_table().size()) {}

SourceKind& OptionCollector::kind_of(std::string_view name) {
  return kinds_[static_cast<size_t>(find_option(name) - option_table().data())];
}

void OptionCollector::unknown(std::string_view name, const std::string& shown, bool flag) {
  if (const std::string_view advice = advice_for_name(name); !advice.empty()) {
    return problem(fmt::format("{} is not an option ({})", shown, advice));
  }
  const bool search = problems_.size() < kSuggestionsMax;
  const std::string_view nearest = search ? nearest_option(name, command_) : std::string_view();
  const bool is_same = !called_elsewhere(name, command_).empty();
  const std::string_view reason = is_same ? "" : reason_for(name, command_, !nearest.empty());
  if (!reason.empty()) {
    return problem(
        with_advice(fmt::format("{} is not an option: {}", shown, reason), "leave it out"));
  }
  std::string written;
  if (!nearest.empty())
    written = flag ? "--" + std::string(nearest) : key_of(*find_option(nearest));
  problem(shown + " is not an option" +
          did_you_mean(written, fmt::format("strata {} --help lists them", name_of(command_))));
}

void OptionCollector::set(SourceKind kind, std::string_view name,
                          const std::vector<std::string>& values, const std::string& shown) {
  const OptionRow* row = find_option(name);
  if (row == nullptr) return unknown(name, shown, kind == SourceKind::kFlag);
  if (!takes(*row, command_)) {
    if (kind == SourceKind::kFlag) {
      const std::string_view here = called_elsewhere(name, command_);
      return problem(fmt::format("{} is not an option of {} (it belongs to {}{})", shown,
                                 name_of(command_), commands_of(*row),
                                 here.empty() ? "" : fmt::format("; did you mean --{}?", here)));
    }
    Options scratch;
    const std::string cause = assign(*row, values, scratch);
    if (!cause.empty()) {
      problem(fmt::format("{} = \"{}\" {}", shown, joined(values),
                          with_advice(cause, "give " + accepted_text(*row))));
    }
    return;
  }
  SourceKind& known = kind_of(row->name);
  std::vector<std::string> all;
  if (known == SourceKind::kFlag && kind == SourceKind::kFlag) {
    if (row->type != OptionType::kTexts) {
      return problem(
          fmt::format("{} is given twice ({})", shown,
                      takes_several(*row) ? "join several values by commas" : "keep one"));
    }
    all = options_.*std::get<std::vector<std::string> Options::*>(row->field);
  }
  if (known > kind) return;
  known = kind;  // even a wrong value counts as given
  shown_[static_cast<size_t>(row - option_table().data())] = shown;
  all.insert(all.end(), values.begin(), values.end());
  const std::string cause = assign(*row, all, options_);
  if (cause.empty()) return;
  problem(fmt::format("{} \"{}\" {}", shown, joined(values),
                      with_advice(cause, "give " + accepted_text(row_for(*row, command_)))));
}

ParameterGroupOptions& OptionCollector::open_group(int index) {
  if (options_.groups.size() <= static_cast<size_t>(index)) {
    options_.groups.resize(static_cast<size_t>(index) + 1);
  }
  return options_.groups[static_cast<size_t>(index)];
}

void OptionCollector::set_group(int index, std::string_view key,
                                const std::vector<std::string>& values, const std::string& shown) {
  ParameterGroupOptions& group = open_group(index);
  std::string cause;
  if (values.size() != 1) {
    cause = "takes one value, not a list";
  } else if (key == "match") {
    group.match = values[0];
  } else if (key == "lr_factor") {
    cause = assign_number(values[0], {0, 1000}, group.lr_factor);
    if (!cause.empty()) cause += " (give a number, 0 to 1000)";
  } else if (key == "weight_decay") {
    cause = assign_number(values[0], {0, 1}, group.weight_decay.emplace());
    if (!cause.empty()) cause += " (give a number, 0 to 1)";
  } else if (key == "frozen") {
    group.frozen = values[0] == "true";
    if (!group.frozen && values[0] != "false") cause = "is neither true nor false";
  } else {
    return problem(shown + " is not a key of [[group]]" +
                   did_you_mean(nearest_name(key, kGroupKeys),
                                "match, lr_factor, weight_decay and frozen are"));
  }
  if (!cause.empty()) problem(fmt::format("{} \"{}\" {}", shown, joined(values), cause));
}

// Says of options that a text names how the user wrote them, where that was not a flag.
std::string OptionCollector::with_sources(std::string text) const {
  const auto rows = option_table();
  std::string sources;
  for (size_t index = 0; index < rows.size(); ++index) {
    const bool is_flag =
        kinds_[index] == SourceKind::kDefault || kinds_[index] == SourceKind::kFlag;
    if (is_flag || shown_[index] == key_of(rows[index])) continue;
    const std::string flag = "--" + std::string(rows[index].name);
    const size_t at = text.find(flag);
    if (at == text.npos || text.find_first_of(" ,:)", at) != at + flag.size()) continue;
    sources += fmt::format("; {} is given by {}", flag, shown_[index]);
  }
  return text + sources;
}

Options OptionCollector::given_so_far() const {
  Options options = options_;
  for (size_t index = 0; index < kinds_.size(); ++index) {
    if (kinds_[index] != SourceKind::kDefault) {
      options.given.emplace_back(option_table()[index].name);
    }
  }
  return options;
}

void OptionCollector::take_back(std::string_view name) {
  copy_value(*find_option(name), Options(), options_);
  kind_of(name) = SourceKind::kDefault;
}

// A run that began on the CPU stays there: its record has no device.
void OptionCollector::choose_device(const FindGpu& gpu) {
  const bool is_resumed = std::ranges::find(kinds_, SourceKind::kRun) != kinds_.end();
  const bool chooses = options_.device == Device::kAuto &&
                       takes(*find_option("device"), command_) &&
                       (!is_resumed || command_ != Command::kTrain);
  if (chooses && gpu) options_.device = gpu(options_);
  // --device cpu overrides a device memory budget from a file or the resumed run.
  if (kind_of("device-memory") < kind_of("device") && !may_have_device(command_, options_)) {
    take_back("device-memory");
    std::erase(options_.given, "device-memory");
  }
}

Options OptionCollector::finish(const FindGpu& gpu) {
  // A flag overrides the option of a file that excludes it.
  for (const auto& [first, second, reason] : exclusive_options()) {
    const SourceKind a = kind_of(first);
    const SourceKind b = kind_of(second);
    if (a == SourceKind::kDefault || b == SourceKind::kDefault || a == b) continue;
    take_back(a < b ? first : second);
  }
  options_ = given_so_far();
  for (size_t index = 0; index < options_.groups.size(); ++index) {
    if (options_.groups[index].match.empty()) {
      problem(fmt::format("[[group]] {} has no match (give match = \"regular expression\")",
                          index + 1));
    }
  }
  apply_mesh(options_, problems_);
  choose_device(gpu);
  for (std::string& text : find_conflicts(command_, options_)) {
    problem(with_sources(std::move(text)));
  }
  for (const auto& [command, detail, of] : option_details()) {
    if (command != command_ || kind_of(detail) != SourceKind::kFlag || options_.is_given(of)) {
      continue;
    }
    problem(fmt::format("--{} has no meaning without --{} (give both or none)", detail, of));
  }
  for (IdleOption& idle : find_idle_options(command_, options_)) {
    idle.text = with_sources(std::move(idle.text));
    if (idle.is_mistake && kind_of(idle.name) == SourceKind::kFlag) {
      problem(std::move(idle.text));
    } else {
      options_.warnings.push_back(std::move(idle.text));
    }
  }
  if (!problems_.empty()) refuse_options(problems_);
  return std::move(options_);
}

}  // namespace strata::config

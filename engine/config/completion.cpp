// SPDX-License-Identifier: Apache-2.0
#include "engine/config/completion.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

// A command: the words that may follow it, and its flags.
struct CompletedCommand {
  std::string name;
  std::vector<std::string> words = {};
  std::vector<OptionRow> flags = {};
};

// What bash completes after a flag; empty for a flag without a value.
std::string action_of(const OptionRow& row) {
  if (row.type == OptionType::kSwitch) return "";
  if (row.type == OptionType::kOnOff) return "words='on off'";
  if (!row.choices.empty()) return fmt::format("words='{}'", fmt::join(row.choices, " "));
  if (row.metavar.starts_with("DIR") || row.metavar.find("RUN") != row.metavar.npos) {
    return "_strata_paths -d; return";
  }
  if (row.metavar.find("FILE") != row.metavar.npos || row.metavar.starts_with("PATH"))
    return "_strata_paths -f; return";
  return "return";
}

std::vector<CompletedCommand> all_commands() {
  std::vector<CompletedCommand> commands;
  CompletedCommand help = {"help"};
  std::map<std::string, std::vector<std::string>> subjects;
  for (int index = 0; index < kCommandCount; ++index) {
    const auto command = static_cast<Command>(index);
    // "bench io" is a command, and io a word that may follow bench.
    const std::string name(name_of(command));
    const size_t space = name.find(' ');
    if (space == name.npos) help.words.push_back(name);
    if (space != name.npos) subjects[name.substr(0, space)].push_back(name.substr(space + 1));
    CompletedCommand one = {name};
    for (const OptionRow& row : option_table()) {
      if (takes(row, command)) one.flags.push_back(row_for(row, command));
    }
    commands.push_back(one);
  }
  for (const auto& [word, words] : subjects) {
    commands.push_back({word, words});
    help.words.push_back(word);
  }
  commands.push_back({"completion", {"bash"}});
  commands.push_back(help);
  return commands;
}

std::string values_of(const CompletedCommand& command) {
  std::map<std::string, std::string> flags_by_action;
  for (const OptionRow& row : command.flags) {
    std::string& flags = flags_by_action[action_of(row)];
    flags += (flags.empty() ? "--" : "|--") + std::string(row.name);
  }
  flags_by_action.erase("");
  std::string cases;
  for (const auto& [action, flags] : flags_by_action) {
    cases += fmt::format("        {}) {} ;;\n", flags, action);
  }
  return cases.empty() ? "" : "      case $before in\n" + cases + "      esac\n";
}

std::string bash(const std::vector<CompletedCommand>& commands) {
  std::string names;
  std::string cases;
  std::set<std::string> first_words;  // of commands of two words
  for (const CompletedCommand& command : commands) {
    const size_t space = command.name.find(' ');
    if (space == std::string::npos) names += command.name + " ";
    if (space != std::string::npos) first_words.insert(command.name.substr(0, space));
    std::string words = fmt::format("{}", fmt::join(command.words, " "));
    for (const OptionRow& row : command.flags) words += " --" + std::string(row.name);
    cases += fmt::format("    '{}')\n      words='{}'\n{}      ;;\n", command.name, words,
                         values_of(command));
  }
  return fmt::format(R"(# bash completion for strata: source <(strata completion bash)
_strata_paths() {{
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
}}
_strata() {{
  local words='' current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{}' -- "$current"))
    return
  fi
  # --flag=value comes as three words.
  if [[ $current == = ]]; then current=''
  elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}
  elif [[ $current == -* ]]; then before=''; fi
  local command=${{COMP_WORDS[1]}}
  case $command in {}) if ((COMP_CWORD > 2)); then command+=" ${{COMP_WORDS[2]}}"; fi ;; esac
  case $command in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _strata strata
)",
                     names, fmt::join(first_words, "|"), cases);
}

}  // namespace

std::string completion_text(std::string_view shell) {
  if (shell == "bash") return bash(all_commands());
  throw Error(ErrorCode::kUsage,
              fmt::format("completion: {}: there is no script for this shell (give bash)", shell));
}

}  // namespace strata::config

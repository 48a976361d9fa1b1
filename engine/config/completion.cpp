// SPDX-License-Identifier: Apache-2.0
#include "engine/config/completion.h"

#include <fmt/format.h>

#include <map>
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
  for (int index = 0; index < kCommandCount; ++index) {
    const auto command = static_cast<Command>(index);
    // For bash, "bench io" is the command bench followed by the word io.
    const std::string_view name = name_of(command);
    const size_t space = name.find(' ');
    CompletedCommand one = {std::string(name.substr(0, space))};
    if (space != std::string_view::npos) one.words.emplace_back(name.substr(space + 1));
    for (const OptionRow& row : option_table()) {
      if (takes(row, command)) one.flags.push_back(row_for(row, command));
    }
    help.words.push_back(one.name);
    commands.push_back(one);
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
  for (const CompletedCommand& command : commands) {
    names += command.name + " ";
    std::string words = fmt::format("{}", fmt::join(command.words, " "));
    for (const OptionRow& row : command.flags) words += " --" + std::string(row.name);
    cases += fmt::format("    {})\n      words='{}'\n{}      ;;\n", command.name, words,
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
  case ${{COMP_WORDS[1]}} in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _strata strata
)",
                     names, cases);
}

}  // namespace

std::string completion_text(std::string_view shell) {
  if (shell == "bash") return bash(all_commands());
  throw Error(ErrorCode::kUsage,
              fmt::format("completion: {}: there is no script for this shell (give bash)", shell));
}

}  // namespace strata::config

// SPDX-License-Identifier: Apache-2.0
#include "engine/config/completion.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

// What stands behind a flag.
enum class FlagValue : uint8_t { kNothing, kChoice, kDirectory, kFile, kOther };

struct CompletedFlag {
  std::string name;  // without dashes
  std::string help;
  FlagValue value = FlagValue::kNothing;
  std::vector<std::string> choices = {};
  std::string metavar = {};
  bool value_may_lack = false;
};

// A command: what may follow it at once, and its flags.
struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<std::string> words = {};
  std::vector<CompletedFlag> flags = {};
};

using Commands = std::vector<CompletedCommand>;

constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};

FlagValue value_of(const OptionRow& row) {
  if (row.type == OptionType::kSwitch) return FlagValue::kNothing;
  if (row.type == OptionType::kOnOff || !row.choices.empty()) return FlagValue::kChoice;
  if (row.metavar.starts_with("DIR") || row.type == OptionType::kOptional) {
    return FlagValue::kDirectory;
  }
  return row.metavar == "FILE" || row.metavar == "PATH" ? FlagValue::kFile : FlagValue::kOther;
}

CompletedFlag flag_of(const OptionRow& row) {
  CompletedFlag flag = {std::string(row.name), std::string(row.help), value_of(row)};
  if (row.type == OptionType::kOnOff) flag.choices = {"on", "off"};
  for (const std::string_view choice : row.choices) flag.choices.emplace_back(choice);
  flag.metavar = row.metavar.empty() ? row.name : row.metavar;
  flag.value_may_lack = row.type == OptionType::kOptional;
  return flag;
}

// "bench io" is the command bench and the word io behind it.
CompletedCommand command_named(std::string_view name, std::string_view help) {
  const size_t space = name.find(' ');
  CompletedCommand command = {std::string(name.substr(0, space)), std::string(help)};
  if (space != std::string_view::npos) command.words.emplace_back(name.substr(space + 1));
  return command;
}

Commands all_commands() {
  Commands commands;
  for (int index = 0; index < kCommandCount; ++index) {
    const auto command = static_cast<Command>(index);
    CompletedCommand one = command_named(name_of(command), help_of(command));
    for (const OptionRow& row : option_table()) {
      if (takes(row, command)) one.flags.push_back(flag_of(row));
    }
    commands.push_back(one);
  }
  commands.push_back({"completion",
                      "Print a script that completes command lines.",
                      {kShells.begin(), kShells.end()}});
  CompletedCommand help = {"help", "What a command does, and its options."};
  for (const CompletedCommand& command : commands) {
    if (command.name != "completion") help.words.push_back(command.name);
  }
  commands.push_back(help);
  return commands;
}

// In single quotes, as all three shells read them.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// What bash does behind the flags of a command.
std::string bash_values(const CompletedCommand& command) {
  std::map<std::string, std::vector<std::string>> flags_by_action;
  for (const CompletedFlag& flag : command.flags) {
    std::string action;
    if (flag.value == FlagValue::kChoice) action = "words=" + quoted(joined(flag.choices));
    if (flag.value == FlagValue::kDirectory) action = "_strata_paths -d; return";
    if (flag.value == FlagValue::kFile) action = "_strata_paths -f; return";
    if (flag.value == FlagValue::kOther) action = "return";
    if (!action.empty()) flags_by_action[action].push_back("--" + flag.name);
  }
  std::string cases;
  for (const auto& [action, flags] : flags_by_action) {
    cases += fmt::format("        {}) {} ;;\n", fmt::join(flags, "|"), action);
  }
  return cases.empty() ? "" : "      case $before in\n" + cases + "      esac\n";
}

std::string bash(const Commands& commands) {
  std::string names;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    names += command.name + " ";
    std::string words = joined(command.words);
    for (const CompletedFlag& flag : command.flags) words += " --" + flag.name;
    cases += fmt::format("    {})\n      words={}\n{}      ;;\n", command.name, quoted(words),
                         bash_values(command));
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

// Text of a zsh specification: brackets and colons end its parts.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// A flag as _arguments reads it: "=" allows --flag value and --flag=value, "::" no value at all.
std::string zsh_specification(const CompletedFlag& flag) {
  const std::string help = fmt::format("[{}]", zsh_escaped(flag.help));
  if (flag.value == FlagValue::kNothing) return "--" + flag.name + help;
  const char* action = flag.value == FlagValue::kDirectory ? "_files -/"
                       : flag.value == FlagValue::kFile    ? "_files"
                                                           : " ";
  return fmt::format("--{}={}{}{}:{}", flag.name, help, flag.value_may_lack ? "::" : ":",
                     zsh_escaped(flag.metavar),
                     flag.value == FlagValue::kChoice ? "(" + joined(flag.choices) + ")" : action);
}

std::string zsh(const Commands& commands) {
  std::string names;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    names += "    " + quoted(command.name + ":" + zsh_escaped(command.help)) + "\n";
    cases += fmt::format("    {}) _arguments", command.name);
    if (!command.words.empty()) {
      cases += " " + quoted(fmt::format("1:{}:({})", command.name, joined(command.words)));
    }
    for (const CompletedFlag& flag : command.flags) {
      cases += " \\\n      " + quoted(zsh_specification(flag));
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef strata
# zsh completion for strata: source <(strata completion zsh) behind compinit; or as a file _strata
# in a folder of $fpath.
_strata() {{
  local -a commands
  commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
{}  esac
}}
# As a file in $fpath this text is the function itself, at the first call.
if [[ $funcstack[1] == _strata ]]; then
  _strata "$@"
elif (( $+functions[compdef] )); then
  compdef _strata strata
else
  print -u2 'strata completion: not loaded: autoload -Uz compinit && compinit has to come before it'
fi
)",
                     names, cases);
}

std::string fish_value(const CompletedFlag& flag) {
  switch (flag.value) {
    case FlagValue::kNothing:
      return "";
    case FlagValue::kChoice:
      return " -x -a " + quoted(joined(flag.choices));
    case FlagValue::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case FlagValue::kFile:
      return " -r -F";
    case FlagValue::kOther:
      break;
  }
  return " -x";
}

std::string fish(const Commands& commands) {
  std::string out = R"(# fish completion for strata: strata completion fish | source
function __strata_at
  set -l words (commandline -opc)
  test (count $words) -ge 2; and test "$words[2]" = $argv[1]
end
function __strata_behind
  set -l words (commandline -opc)
  test (count $words) -eq (count strata $argv); and test "$words[-1]" = "$argv[-1]"
end
complete -c strata -f
)";
  const auto line = [&out](const std::string& condition, const std::string& rest) {
    out += fmt::format("complete -c strata -n {} {}\n", quoted(condition), rest);
  };
  for (const CompletedCommand& command : commands) {
    line("test (count (commandline -opc)) -eq 1",
         fmt::format("-a {} -d {}", command.name, quoted(command.help)));
    if (!command.words.empty()) {
      line("__strata_behind " + command.name, "-a " + quoted(joined(command.words)));
    }
    for (const CompletedFlag& flag : command.flags) {
      line("__strata_at " + command.name,
           fmt::format("-l {}{} -d {}", flag.name, fish_value(flag), quoted(flag.help)));
    }
  }
  return out;
}

}  // namespace

std::string completion_text(std::string_view shell) {
  const Commands commands = all_commands();
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  throw Error(ErrorCode::kUsage,
              fmt::format("completion: {}: no such shell{}", shell,
                          did_you_mean(nearest_name(shell, kShells), "give bash, zsh or fish")));
}

}  // namespace strata::config

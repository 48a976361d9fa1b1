// SPDX-License-Identifier: Apache-2.0
#include "engine/config/completion.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "engine/base/error.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

// What stands behind a flag.
enum class Value : uint8_t { kNothing, kChoice, kDirectory, kFile, kOther };

Value value_of(const OptionRow& row) {
  if (row.type == OptionType::kSwitch) return Value::kNothing;
  if (row.type == OptionType::kOnOff || !row.choices.empty()) return Value::kChoice;
  if (row.metavar.starts_with("DIR") || row.type == OptionType::kOptional) return Value::kDirectory;
  return row.metavar == "FILE" || row.metavar == "PATH" ? Value::kFile : Value::kOther;
}

std::string choices_of(const OptionRow& row) {
  if (row.type == OptionType::kOnOff) return "on off";
  return fmt::format("{}", fmt::join(row.choices, " "));
}

std::vector<const OptionRow*> rows_of(Command command) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : option_table()) {
    if (takes(row, command)) rows.push_back(&row);
  }
  return rows;
}

template <typename Function>
void for_each_command(const Function& function) {
  for (int index = 0; index < kCommandCount; ++index) function(static_cast<Command>(index));
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

std::string flags_with(Value value) {
  std::string flags;
  for (const OptionRow& row : option_table()) {
    if (value_of(row) != value) continue;
    flags += (flags.empty() ? "--" : "|--") + std::string(row.name);
  }
  return flags;
}

std::string bash(std::span<const ExtraCommand> extra) {
  std::string commands;
  std::string words;
  for_each_command([&](Command command) {
    commands += std::string(name_of(command)) + " ";
    words += fmt::format("    {}) words='", name_of(command));
    for (const OptionRow* row : rows_of(command)) words += fmt::format("--{} ", row->name);
    words += "' ;;\n";
  });
  for (const ExtraCommand& command : extra) {
    commands += command.name + " ";
    words += fmt::format("    {}) words='{}' ;;\n", command.name, fmt::join(command.words, " "));
  }
  std::string choices;
  for (const OptionRow& row : option_table()) {
    if (value_of(row) != Value::kChoice) continue;
    choices += fmt::format("    --{}) words='{}' ;;\n", row.name, choices_of(row));
  }
  return fmt::format(R"(# bash completion for strata: source <(strata completion bash)
_strata() {{
  local words='' current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{}' -- "$current"))
    return
  fi
  case $before in
    {}) compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -d -- "$current")); return ;;
    {}) compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
    {}) return ;;
{}  esac
  if [[ -z $words ]]; then case ${{COMP_WORDS[1]}} in
{}  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _strata strata
)",
                     commands, flags_with(Value::kDirectory), flags_with(Value::kFile),
                     flags_with(Value::kOther), choices, words);
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

std::string zsh_action(const OptionRow& row) {
  switch (value_of(row)) {
    case Value::kNothing:
      return "";
    case Value::kChoice:
      return fmt::format(":{}:({})", row.name, choices_of(row));
    case Value::kDirectory:
      return fmt::format(":{}:_files -/", zsh_escaped(row.metavar));
    case Value::kFile:
      return fmt::format(":{}:_files", zsh_escaped(row.metavar));
    case Value::kOther:
      break;
  }
  return fmt::format(":{}: ", zsh_escaped(row.metavar));
}

std::string zsh(std::span<const ExtraCommand> extra) {
  std::string commands;
  std::string cases;
  for_each_command([&](Command command) {
    commands += fmt::format(
        "    {}\n", quoted(fmt::format("{}:{}", name_of(command), zsh_escaped(help_of(command)))));
    cases += fmt::format("    {}) _arguments", name_of(command));
    for (const OptionRow* row : rows_of(command)) {
      const std::string specification =
          fmt::format("--{}[{}]{}", row->name, zsh_escaped(row->help), zsh_action(*row));
      cases += " \\\n      " + quoted(specification);
    }
    cases += " ;;\n";
  });
  for (const ExtraCommand& command : extra) {
    commands += fmt::format("    {}\n", quoted(command.name + ":" + zsh_escaped(command.help)));
    cases += fmt::format("    {}) compadd -- {} ;;\n", command.name, fmt::join(command.words, " "));
  }
  return fmt::format(R"(#compdef strata
# zsh completion for strata: source <(strata completion zsh)
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
compdef _strata strata
)",
                     commands, cases);
}

std::string fish_value(const OptionRow& row) {
  switch (value_of(row)) {
    case Value::kNothing:
      return "";
    case Value::kChoice:
      return fmt::format(" -x -a {}", quoted(choices_of(row)));
    case Value::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case Value::kFile:
      return " -r -F";
    case Value::kOther:
      break;
  }
  return " -x";
}

std::string fish(std::span<const ExtraCommand> extra) {
  std::string out =
      "# fish completion for strata: strata completion fish | source\n"
      "complete -c strata -f\n";
  const auto add_command = [&](std::string_view name, std::string_view help) {
    fmt::format_to(std::back_inserter(out),
                   "complete -c strata -n __fish_use_subcommand -a {} -d {}\n", name, quoted(help));
  };
  const auto after = [](std::string_view name) {
    return fmt::format("complete -c strata -n '__fish_seen_subcommand_from {}'", name);
  };
  for_each_command([&](Command command) {
    add_command(name_of(command), help_of(command));
    for (const OptionRow* row : rows_of(command)) {
      fmt::format_to(std::back_inserter(out), "{} -l {}{} -d {}\n", after(name_of(command)),
                     row->name, fish_value(*row), quoted(row->help));
    }
  });
  for (const ExtraCommand& command : extra) {
    add_command(command.name, command.help);
    fmt::format_to(std::back_inserter(out), "{} -a {}\n", after(command.name),
                   quoted(fmt::format("{}", fmt::join(command.words, " "))));
  }
  return out;
}

}  // namespace

std::string completion_text(std::string_view shell, std::span<const ExtraCommand> extra) {
  if (shell == "bash") return bash(extra);
  if (shell == "zsh") return zsh(extra);
  if (shell == "fish") return fish(extra);
  constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};
  const std::string_view nearest = nearest_name(shell, kShells);
  throw Error(ErrorCode::kUsage,
              fmt::format("completion: {}: no such shell ({})", shell,
                          nearest.empty() ? "give bash, zsh or fish"
                                          : fmt::format("did you mean {}?", nearest)));
}

}  // namespace strata::config

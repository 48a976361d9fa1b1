// SPDX-License-Identifier: Apache-2.0
// The --help texts, made from the option table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "engine/config/nearest_name.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

namespace strata::config {
namespace {

struct CommandRow {
  std::string_view name;
  std::string_view use;  // what must be given
  std::string_view help;
  std::string_view first;  // the options that matter most, at most ten
};

// In the order of Command.
constexpr std::array<CommandRow, kCommandCount> kCommands = {{
    {"init", "--data PATH --out DIR",
     "Make a small random model, with a tokenizer trained on a text.",
     "data out vocab-size hidden layers heads recipe seed"},
    {"train", "--model DIR --data PATH --out DIR", "Fine-tune a model within memory budgets.",
     "model data out host-memory nvme steps sequence-length micro-batch lr resume"},
    {"launch", "--ranks N -- train ...",
     "Run a command with one process for each rank, on this machine or on several.",
     "ranks nodes node-rank rendezvous secret-file"},
    {"eval", "--model DIR --data PATH", "Measure loss and perplexity.",
     "model data resume host-memory nvme sequence-length eval-fraction"},
    {"plan", "--model DIR",
     "Say what fits where, how long a step and the run take and how the drives wear; needs no "
     "weights.",
     "model data host-memory nvme machine steps sequence-length micro-batch compare explain-lines"},
    {"doctor", "", "Check this machine and the drives given, and say how to fix what is wrong.",
     "nvme"},
    {"export", "--resume RUN --out DIR", "Write a checkpoint as a Hugging Face model directory.",
     "resume out model export-dtype"},
    {"generate", "--model DIR --prompt TEXT", "Continue a text.",
     "model prompt prompts-file chat stop max-new-tokens temperature resume host-memory nvme"},
    {"tokenize", "--model DIR [--text TEXT | --data PATH]",
     "Print the token ids of a text: --text, a file, or standard input.",
     "model text data special pieces decode count"},
    {"models", "", "List the families of models that are trained here.", ""},
    {"bench io", "--nvme DIR[,DIR]",
     "Measure drives as the I/O engine uses them: rates, latencies, processor time.",
     "nvme size block depth mode seconds for tokens baseline compare-fio"},
    {"bench link", "", "Measure copies between host memory and a GPU, by size, and their latency.",
     "device device-memory seconds json"},
    {"bench kernels", "",
     "Measure the ops of a GPU or of the CPU, one by one, against its memory and products.",
     "device recipe device-memory seconds json"},
    {"report", "RUN", "Write what a run did as one HTML file with charts.", "run out"},
}};

constexpr size_t kFlagWidth = 30;
constexpr size_t kLineWidth = 100;

// Appends `text` broken at spaces, each line after the first indented like the first.
void append_wrapped(std::string& out, std::string_view text) {
  const size_t width = kLineWidth - kFlagWidth;
  while (text.size() > width) {
    size_t at = text.rfind(' ', width);
    if (at == std::string_view::npos) at = width;
    out.append(text.substr(0, at)).append("\n").append(kFlagWidth, ' ');
    text.remove_prefix(std::min(text.size(), at + 1));
  }
  out.append(text).append("\n");
}

std::string flag_text(const OptionRow& row) {
  std::string value(row.metavar);
  if (row.type == OptionType::kOnOff) value = "on|off";
  const char* between = row.type == OptionType::kList ? "," : "|";
  for (const auto choice : row.choices) {
    value += (value.empty() ? "" : between) + std::string(choice);
  }
  if (row.type == OptionType::kDevice) value += "[:N]";
  return fmt::format("  --{} {}", row.name, value);
}

// The text for the default; empty when there is nothing to say about it.
std::string default_text(const OptionRow& row) {
  if (!row.unset_note.empty()) return "default: " + std::string(row.unset_note);
  using enum OptionType;
  if (row.type == kSwitch || row.type == kOptional || row.type == kString) return "";
  const std::string value = value_text(row, Options());
  return value.empty() ? "" : "default " + value;
}

// Range, unit and default: " (1 to 1024 segments; default: the planner chooses)". Choices are
// shown beside the flag instead.
std::string notes(const OptionRow& row) {
  const std::string limits = limits_text(row);
  const std::string standard = default_text(row);
  if (limits.empty() && standard.empty()) return "";
  const bool both = !limits.empty() && !standard.empty();
  return fmt::format(" ({}{}{})", limits, both ? "; " : "", standard);
}

void append_option(std::string& out, const OptionRow& row) {
  const std::string flag = flag_text(row);
  out += flag;
  if (flag.size() + 1 < kFlagWidth) {
    out.append(kFlagWidth - flag.size(), ' ');
  } else {
    out.append("\n").append(kFlagWidth, ' ');
  }
  append_wrapped(out, std::string(row.help) + notes(row));
}

// The options of a list of names separated by spaces.
std::vector<const OptionRow*> options_in(std::string_view names) {
  std::vector<const OptionRow*> rows;
  while (!names.empty()) {
    const size_t space = std::min(names.find(' '), names.size());
    rows.push_back(find_option(names.substr(0, space)));
    names.remove_prefix(std::min(names.size(), space + 1));
  }
  return rows;
}

// For the commands that plan updates.
constexpr std::string_view kGroupHelp = R"(
The file of --config may have groups of parameters. A parameter belongs to the first [[group]] whose
match, a regular expression, fits its whole name. lr_factor, 0 to 1000, multiplies --lr for these
parameters; weight_decay, 0 to 1, replaces --weight-decay, but norms and biases decay only with
--decay-all; with frozen = true they are not trained.

  [[group]]
  match = ".*embed.*"
  lr_factor = 0.1
  weight_decay = 0.0
)";

}  // namespace

std::vector<const OptionRow*> main_options(Command command) {
  return options_in(kCommands[static_cast<size_t>(command)].first);
}

std::string_view name_of(Command command) {
  return kCommands[static_cast<size_t>(command)].name;
}

std::string_view help_of(Command command) {
  return kCommands[static_cast<size_t>(command)].help;
}

std::optional<Command> parse_command(std::string_view name) {
  for (size_t index = 0; index < kCommands.size(); ++index) {
    if (kCommands[index].name == name) return static_cast<Command>(index);
  }
  return std::nullopt;
}

std::string_view nearest_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const CommandRow& row : kCommands) names.push_back(row.name.substr(0, row.name.find(' ')));
  names.insert(names.end(), {"completion", "help"});
  return nearest_name(name, names);
}

std::string help_text(Command command) {
  const CommandRow& about = kCommands[static_cast<size_t>(command)];
  std::string out = fmt::format("{}\n\nUsage: strata {} {}{}[options]\n", about.help, about.name,
                                about.use, about.use.empty() ? "" : " ");
  const std::vector<const OptionRow*> first = main_options(command);
  if (!first.empty()) out += "\nMain options\n";
  for (const OptionRow* row : first) append_option(out, row_for(*row, command));
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!takes(row, command) || std::ranges::count(first, &row) > 0) continue;
    if (row.group != group) {
      group = row.group;
      fmt::format_to(std::back_inserter(out), "\n{}\n", group);
    }
    append_option(out, row_for(row, command));
  }
  if (takes(*find_option("config"), command)) {
    out +=
        "\nThe file of --config takes every option except --config and --help, with _ for -, such "
        "as\n"
        "host_memory = \"24GiB\". Commands can share a file: each ignores the options of others.\n";
  }
  if (command == Command::kTrain || command == Command::kPlan) out += kGroupHelp;
  return out;
}

std::string help_text_of(std::string_view word) {
  std::string usage, sentences;
  for (const CommandRow& row : kCommands) {
    if (!row.name.starts_with(word)) continue;
    usage += fmt::format("{} strata {} {}{}[options]\n", usage.empty() ? "Usage:" : "      ",
                         row.name, row.use, row.use.empty() ? "" : " ");
    sentences += fmt::format("  {:<15}{}\n", row.name, row.help);
  }
  std::string text = usage + "\n" + sentences;
  text += "\nAdd --help to one of them for its options.\n";
  return text;
}

std::string help_text() {
  std::string out =
      "Strata fine-tunes models whose training state does not fit in memory.\n\n"
      "Usage: strata COMMAND [options]\n\n";
  for (const CommandRow& row : kCommands) {
    fmt::format_to(std::back_inserter(out), "  {:<15}{}\n", row.name, row.help);
  }
  out +=
      "  completion     Print a script with which bash completes command lines.\n"
      "  help           Print this, or the options of a command: strata help train.\n"
      "\nstrata COMMAND --help lists the options of a command, too.\n";
  return out;
}

}  // namespace strata::config

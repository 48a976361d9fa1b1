// SPDX-License-Identifier: Apache-2.0
// What options mean in the commands in which they are not the same as in `train`.
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

using enum Command;

struct CommandHelp {
  Command command;
  std::string_view name;
  std::string_view unset_note;
  std::string_view help;
  std::string_view metavar = "";  // empty: that of the option
};

constexpr CommandHelp kHelp[] = {
    {kInit, "data", "",
     "Files of text or of records to train the tokenizer on, or directories of them."},
    {kInit, "out", "", "The directory for the new model."},
    {kInit, "recipe", "", "Number format of the new model's weights."},
    {kInit, "seed", "", "Seed of the new model's random weights."},
    {kInit, "force", "", "Replace what --out holds."},

    {kTrain, "machine", "measured here",
     "Machine profile with the figures that the planner uses, instead of measuring this machine."},

    {kLaunch, "ranks", "",
     "Ranks on each machine; a step learns from micro-batch x accumulate samples of every rank."},

    {kPlan, "model", "",
     "The Hugging Face model directory, of which config.json is enough; text of --data needs its "
     "tokenizer too."},

    {kEval, "model", "",
     "The Hugging Face model directory to measure; not needed with --resume RUN."},
    {kEval, "data", "",
     "Text, JSONL, JSON or token files (.bin) to measure on, or directories of them."},
    {kEval, "resume", "",
     "Measure the newest checkpoint of a run, or the checkpoint named, instead of --model.", "RUN"},
    {kEval, "eval-fraction", "all of it",
     "Measure only this fraction of --data, taken from its end, as training holds out."},
    {kEval, "micro-batch", "", "Samples computed at a time; fewer need less memory."},
    {kEval, "recipe", "", "Number format of the weights in memory."},

    {kGenerate, "model", "",
     "The Hugging Face model directory that writes; not needed with --resume RUN."},
    {kGenerate, "resume", "",
     "Let the newest checkpoint of a run write, or the checkpoint named, instead of --model.",
     "RUN"},
    {kGenerate, "sequence-length", "the positions that the model has",
     "Longest text, with its prompt; a longer one ends there."},
    {kGenerate, "micro-batch", "16", "Texts that are continued at a time; fewer need less memory."},
    {kGenerate, "seed", "", "Seed of the random choice of tokens."},
    {kGenerate, "recipe", "", "Number format of the weights in memory."},

    {kExport, "model", "",
     "The Hugging Face model directory that the run began with; not needed with --resume RUN."},
    {kExport, "resume", "", "The run whose newest checkpoint is written, or a checkpoint.", "RUN"},
    {kExport, "out", "", "The directory for the exported model."},
    {kExport, "force", "", "Replace what --out holds."},

    {kTokenize, "model", "", "The Hugging Face model directory with the tokenizer."},
    {kTokenize, "data", "",
     "Files to tokenize, of text or of records, or directories of them; records as training does."},

    {kDoctor, "nvme", "none",
     "Directories for scratch to check, one on each drive; a small file is written and read."},

    {kBench, "nvme", "", "Directories to measure, one on each drive; scratch is written there."},
    {kBench, "nvme-rate", "no limit",
     "Limit of reads and writes, for drives that others use too, such as 2GB,1GB."},
    {kBench, "host-memory", kHostMemoryNote, "Main memory that the run of --for may use."},
    {kBench, "sequence-length", "", "Tokens of a sample of --for."},
    {kBench, "machine", "this machine",
     "Machine profile for --for, with the drives that are measured here; examples/machines has "
     "some."},

    {kBenchLink, "device", "",
     "The device whose link is measured: auto takes a GPU where there is one, and cuda:1 is the "
     "second GPU."},
    {kBenchLink, "device-memory", "a quarter of what is free",
     "Memory that copies may take on either side; the largest have 256 MiB."},
    {kBenchLink, "seconds", "", "Length of all measurements together."},
    {kBenchKernels, "recipe", "", "Number format of the operands."},
    {kBenchKernels, "device", "",
     "The device that is measured: auto takes a GPU where there is one, and cuda:1 is the second "
     "GPU."},
    {kBenchKernels, "device-memory",
     "half of what is free, up to 4 GiB of a GPU and 1 GiB of the host",
     "Memory that the operands of an op may take, of the GPU or of the host; sizes follow it."},
    {kBenchKernels, "seconds", "",
     "Length of all measurements together; ops of a CPU may take "
     "longer."},

    {kReport, "out", "report.html in the run", "The HTML file to write.", "FILE"},
};

}  // namespace

OptionRow row_for(const OptionRow& row, Command command) {
  OptionRow own = row;
  for (const CommandHelp& help : kHelp) {
    if (help.command != command || help.name != row.name) continue;
    own.help = help.help;
    own.unset_note = help.unset_note;
    if (!help.metavar.empty()) own.metavar = help.metavar;
  }
  return own;
}

}  // namespace strata::config

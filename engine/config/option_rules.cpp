// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "engine/base/date.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

struct Required {
  Command command;
  std::string_view name;
};

constexpr Required kRequired[] = {
    {Command::kInit, "data"},      {Command::kInit, "out"},       {Command::kTrain, "model"},
    {Command::kTrain, "data"},     {Command::kTrain, "out"},      {Command::kEval, "model"},
    {Command::kEval, "data"},      {Command::kPlan, "model"},     {Command::kExport, "model"},
    {Command::kExport, "out"},     {Command::kGenerate, "model"}, {Command::kBench, "nvme"},
    {Command::kTokenize, "model"}, {Command::kReport, "run"},
};

constexpr std::string_view kSame = "set the same thing";
constexpr std::string_view kNoCsv = "exclude each other: a comparison has no CSV";
constexpr std::string_view kComparisons = "are two comparisons";
constexpr std::string_view kNoProfile = "exclude each other: a comparison makes no profile";
constexpr std::string_view kNoAnswer = "exclude each other: a comparison does not answer it";

constexpr ExclusivePair kExclusive[] = {
    {"steps", "epochs", kSame},
    {"hosts", "nodes", kSame},
    {"hosts", "ranks", kSame},
    {"hosts", "node-rank", "exclude each other: the machines get their numbers from the file"},
    {"warmup-steps", "warmup-ratio", kSame},
    {"eval-data", "eval-fraction", kSame},
    {"mesh", "shard-ranks", kSame},
    {"mesh", "tensor-ranks", kSame},
    {"mesh", "pipeline-ranks", kSame},
    {"mesh", "context-ranks", kSame},
    {"prompt", "prompts-file", "are two sources of prompts"},
    {"text", "data", "are two sources of one text"},
    {"count", "pieces", "exclude each other: a count shows no tokens"},
    {"count", "decode", "exclude each other: a count shows no text"},
    {"json", "csv", "exclude each other: the answer has one format"},
    {"csv", "compare-fio", kNoCsv},
    {"csv", "compare-checksums", kNoCsv},
    {"compare-fio", "compare-checksums", kComparisons},
    {"baseline", "compare-fio", kComparisons},
    {"baseline", "compare-checksums", kComparisons},
    {"profile", "compare-fio", kNoProfile},
    {"profile", "compare-checksums", kNoProfile},
    {"for", "compare-fio", kNoAnswer},
    {"for", "compare-checksums", kNoAnswer},
    {"no-checksums", "compare-checksums", "contradict each other"},
};

constexpr DetailOf kDetails[] = {
    {Command::kBench, "tokens", "for"},
    {Command::kBench, "sequence-length", "for"},
    {Command::kBench, "host-memory", "for"},
    {Command::kBench, "machine", "for"},
    {Command::kBench, "tolerance", "baseline"},
    {Command::kLaunch, "min-ranks", "max-restarts"},
    {Command::kLaunch, "ssh", "hosts"},
    {Command::kTrain, "trace-from", "trace-steps"},
    {Command::kTrain, "sample-tokens", "sample-prompts"},
    {Command::kGenerate, "system", "chat"},
    {Command::kGenerate, "chat-template", "chat"},
    {Command::kGenerate, "chat-date", "chat"},
};

void check_schedule(const Options& options, std::vector<std::string>& problems) {
  if (options.steps > 0 && options.warmup_steps > options.steps) {
    problems.push_back(fmt::format("--warmup-steps {} is more than --steps {} (lower it)",
                                   options.warmup_steps, options.steps));
  }
}

void check_chat(const Options& options, std::vector<std::string>& problems) {
  if (options.chat_date.empty() || parse_date(options.chat_date)) return;
  problems.push_back(
      fmt::format("--chat-date \"{}\" is not a date (give year, month and day, such as 2024-07-26)",
                  options.chat_date));
}

void check_memory(Command command, const Options& options, std::vector<std::string>& problems) {
  const bool has_drives =
      !options.nvme.empty() || (command == Command::kPlan && !options.machine.empty());
  if (options.offload == Offload::kNvme && !has_drives) {
    problems.push_back("--offload nvme needs a directory (give --nvme DIR)");
  }
  if (options.is_given("nvme-rate") && !has_drives) {
    problems.push_back("--nvme-rate has no effect without drives (give --nvme DIR too)");
  }
  if (options.is_given("device-memory") && !may_have_device(command, options)) {
    problems.push_back(
        fmt::format("--device-memory has no effect with --device {}, which uses host memory "
                    "(use --host-memory)",
                    options.device == Device::kAuto ? "auto, the CPU of this machine"
                                                    : row_of(kind_of(options.device)).name));
  }
  if (options.device_exchange == DeviceExchange::kDirect && !may_have_device(command, options)) {
    problems.push_back(
        "--device-exchange direct needs devices with memory of their own (give --device cuda)");
  }
  if (options.device_exchange == DeviceExchange::kDirect &&
      options.reduce_dtype == Payload::kMxInt8) {
    problems.push_back(
        "--device-exchange direct cannot send gradients as int8, which the host packs and adds "
        "(give --reduce-dtype bf16, or leave --device-exchange out)");
  }
}

// Each context rank has two pieces of a sequence, of equal length.
void check_context(const Options& options, std::vector<std::string>& problems) {
  if (options.context_ranks == 1) return;
  const int64_t pieces = 2 * options.context_ranks;
  if (options.sequence_length % pieces != 0) {
    problems.push_back(
        fmt::format("--sequence-length {} is not {} equal pieces, two for each of --context-ranks "
                    "{} (give a multiple of {})",
                    options.sequence_length, pieces, options.context_ranks, pieces));
  }
  if (options.continues_samples()) {
    problems.push_back(
        fmt::format("--sample-prompts: no rank has the whole text with --context-ranks {} (leave "
                    "it out, and use strata generate with a checkpoint)",
                    options.context_ranks));
  }
}

void check_ranks(const Options& options, std::vector<std::string>& problems) {
  const bool sliced = options.tensor_ranks > 1;
  const auto require_divides = [&](const char* name, int64_t part, int64_t ranks,
                                   const char* of_ranks, int64_t multiple) {
    if (ranks % part == 0) return true;
    problems.push_back(fmt::format(
        "--{0} {1} does not divide {2} {3} (give --ranks a multiple of {4}, or --{0} 1)", name,
        part, of_ranks, ranks, multiple));
    return false;
  };
  if (!require_divides("tensor-ranks", options.tensor_ranks, options.ranks, "--ranks",
                       options.tensor_ranks)) {
    return;
  }
  if (!require_divides("pipeline-ranks", options.pipeline_ranks,
                       options.ranks / options.tensor_ranks,
                       sliced ? "--ranks / --tensor-ranks =" : "--ranks",
                       options.tensor_ranks * options.pipeline_ranks)) {
    return;
  }
  std::string of_data;
  if (sliced) of_data += " / --tensor-ranks";
  if (options.pipeline_ranks > 1) of_data += " / --pipeline-ranks";
  const std::string data_ranks = "--ranks" + of_data + (of_data.empty() ? "" : " =");
  if (!require_divides("context-ranks", options.context_ranks, options.data_ranks(),
                       data_ranks.c_str(),
                       options.tensor_ranks * options.pipeline_ranks * options.context_ranks)) {
    return;
  }
  check_context(options, problems);
  constexpr int64_t kMostOfWindow = 8192;
  const int64_t windows = options.pipeline_windows > 0 ? options.pipeline_windows : 1;
  if (options.pipeline_ranks > 1 && options.accumulate / windows > kMostOfWindow) {
    problems.push_back(
        fmt::format("--accumulate {} with {} is more than {} micro-batches at a time (give "
                    "--pipeline-windows N, or a larger --micro-batch instead)",
                    options.accumulate, counted(windows, "window"), kMostOfWindow));
  }
  constexpr int64_t kMostWindows = 2048;  // times chunks
  const int64_t chunks = options.least_chunks();
  if (options.pipeline_ranks > 1 && chunks * windows > kMostWindows) {
    problems.push_back(fmt::format(
        "--pipeline-windows {} with --pipeline-chunks {}: more than {} together (give at most {} "
        "windows)",
        windows, chunks, kMostWindows, kMostWindows / chunks));
  }
  if (options.pipeline_windows > 0 && options.accumulate % options.pipeline_windows != 0) {
    problems.push_back(
        fmt::format("--pipeline-windows {} does not divide --accumulate {} (give a number that "
                    "does, or leave it out)",
                    options.pipeline_windows, options.accumulate));
  }
  if (options.shard_ranks == 0 || options.data_ranks() % options.shard_ranks == 0) return;
  of_data.clear();
  if (sliced) of_data += fmt::format(" / --tensor-ranks {}", options.tensor_ranks);
  if (options.pipeline_ranks > 1) {
    of_data += fmt::format(" / --pipeline-ranks {}", options.pipeline_ranks);
  }
  if (!of_data.empty()) of_data += fmt::format(" = {}", options.data_ranks());
  problems.push_back(
      fmt::format("--shard-ranks {} does not divide --ranks {}{} (give a number that "
                  "does)",
                  options.shard_ranks, options.ranks, of_data));
}

void check_restarts(const Options& options, std::vector<std::string>& problems) {
  const int64_t ranks = options.nodes * options.ranks;
  if (options.min_ranks <= ranks || !options.hosts.empty()) return;
  problems.push_back(fmt::format("--min-ranks {} is more than the {} that are started (lower it)",
                                 options.min_ranks, counted(ranks, "rank")));
}

void check_lr(const Options& options, std::vector<std::string>& problems) {
  if (options.lr_scaling == LrScaling::kNone) return;
  if (options.lr_batch == 0) {
    problems.push_back(
        "--lr-scaling needs the samples of a step for which --lr is right (give --lr-batch N)");
    return;
  }
  const double highest = find_option("lr")->range.high;
  if (options.peak_lr() <= highest) return;
  problems.push_back(
      fmt::format("--lr-scaling: --lr {} becomes {} with {} samples in a step, more than {}, the "
                  "most that it may be (lower --lr, or raise --lr-batch)",
                  options.lr, options.peak_lr(), options.step_samples(), highest));
}

void check_optimizer(const Options& options, std::vector<std::string>& problems) {
  if (options.optimizer_mode != OptimizerMode::kInBackward) return;
  if (options.clip > 0) {
    problems.push_back(fmt::format(
        "--optimizer-mode in-backward cannot clip: the norm exists only after the backward, and "
        "--clip is {} (give --clip 0, or --optimizer-mode deferred)",
        options.clip));
  }
  if (scales_loss(options.recipe)) {
    problems.push_back(
        "--optimizer-mode in-backward cannot scale the loss, which --recipe fp16 needs "
        "(use --recipe bf16, or --optimizer-mode deferred)");
  }
}

// Whether a group changes anything for its parameters.
bool differs(const ParameterGroupOptions& group) {
  return group != ParameterGroupOptions{.match = group.match};
}

void check_frozen_group(const ParameterGroupOptions& group, const std::string& name,
                        std::vector<std::string>& problems) {
  const bool has_factor = group.lr_factor != 1;
  if (!has_factor && !group.weight_decay) return;
  problems.push_back(
      fmt::format("{} is frozen and cannot use its {}{}{} (leave that out, or frozen)", name,
                  has_factor ? "lr_factor" : "", has_factor && group.weight_decay ? " and " : "",
                  group.weight_decay ? "weight_decay" : ""));
}

// A group that changes nothing is allowed when it keeps its parameters out of a later group.
void check_groups(const Options& options, std::vector<std::string>& problems) {
  const double highest_lr = find_option("lr")->range.high;
  bool differs_later = false;
  for (size_t index = options.groups.size(); index-- > 0;) {
    const ParameterGroupOptions& group = options.groups[index];
    const std::string name = fmt::format("[[group]] {}", index + 1);
    if (group.frozen) {
      check_frozen_group(group, name, problems);
    } else if (group.lr_factor > 1 && options.peak_lr() * group.lr_factor > highest_lr) {
      problems.push_back(
          fmt::format("{}: --lr {} times lr_factor {} is {}, more than {}, the most "
                      "that --lr may be (lower one of them)",
                      name, options.peak_lr(), group.lr_factor, options.peak_lr() * group.lr_factor,
                      highest_lr));
    } else if (!differs(group) && !differs_later && !group.match.empty()) {
      problems.push_back(name +
                         " has no effect: it changes nothing for its parameters (give lr_factor, "
                         "weight_decay or frozen = true, or leave it out)");
    }
    differs_later = differs_later || differs(group);
  }
}

void check_shape(const Options& options, std::vector<std::string>& problems) {
  constexpr int64_t kHeadSizeMost = 4096;
  if (options.hidden % options.heads != 0) {
    problems.push_back(
        fmt::format("--hidden {} is not a multiple of --heads {} (change one of them)",
                    options.hidden, options.heads));
  } else if (options.hidden / options.heads % 2 != 0) {
    problems.push_back(
        fmt::format("--hidden {} over --heads {} is an odd head size; rotary positions "
                    "need an even one (change one of them)",
                    options.hidden, options.heads));
  } else if (options.hidden / options.heads > kHeadSizeMost) {
    problems.push_back(
        fmt::format("--hidden {} over --heads {} is a head size of {}, more than {} (lower the "
                    "first, or raise the second)",
                    options.hidden, options.heads, options.hidden / options.heads, kHeadSizeMost));
  }
  if (options.kv_heads > 0 && options.heads % options.kv_heads != 0) {
    problems.push_back(
        fmt::format("--heads {} is not a multiple of --kv-heads {} (change one of them)",
                    options.heads, options.kv_heads));
  }
}

// Whether an option is given. A switch that is off counts as not given.
bool says(const Options& options, std::string_view name) {
  if (!options.is_given(name)) return false;
  const OptionRow& row = *find_option(name);
  return row.type != OptionType::kSwitch || options.*std::get<bool Options::*>(row.field);
}

void check_rates_wanted(const Options& options, std::vector<std::string>& problems) {
  if (measures_drives(options)) return;
  for (const char* name : {"for", "profile"}) {
    if (!says(options, name)) continue;
    problems.push_back(fmt::format(
        "--{} needs the modes read, write and mixed, with checksums (leave out --mode and "
        "--no-checksums)",
        name));
  }
}

void check_bench(const Options& options, std::vector<std::string>& problems) {
  if (says(options, "for") && !says(options, "tokens")) {
    problems.push_back("--for needs the number of tokens in a step (give --tokens N)");
  }
  check_rates_wanted(options, problems);
  if (says(options, "nvme-rate") && says(options, "profile")) {
    problems.push_back("--profile describes drives at their full speed (leave out --nvme-rate)");
  }
  if (says(options, "nvme-rate") && options.compare_fio) {
    problems.push_back("--compare-fio: --nvme-rate does not limit fio (leave it out)");
  }
  for (const int64_t block : options.blocks) {
    if (std::has_single_bit(static_cast<uint64_t>(block))) continue;
    problems.push_back(
        fmt::format("--block {} is not a power of two (give one, such as 64KiB or 1MiB)", block));
  }
}

void check_link(const Options& options, std::vector<std::string>& problems) {
  if (row_of(kind_of(options.device)).discrete) return;
  problems.push_back(
      fmt::format("--device {} has no link to measure: it computes in host memory (give --device "
                  "cuda; strata doctor says which GPUs can be used)",
                  options.device == Device::kAuto ? "auto, the CPU of this machine,"
                                                  : row_of(kind_of(options.device)).name));
}

}  // namespace

std::span<const ExclusivePair> exclusive_options() {
  return kExclusive;
}

std::span<const DetailOf> option_details() {
  return kDetails;
}

std::vector<std::string> find_conflicts(Command command, const Options& options) {
  std::vector<std::string> problems;
  const bool only_resumes = command == Command::kTrain && options.resume &&
                            options.resume_checkpoint.empty() && !options.is_given("out");
  if (only_resumes) problems.push_back("--resume: no run is named (strata train --resume RUN)");
  for (const Required& need : kRequired) {
    if (only_resumes) break;
    if (need.command != command || options.is_given(need.name)) continue;
    const bool has_run = need.name == "model" && command != Command::kTrain &&
                         takes(*find_option("resume"), command);
    problems.push_back(command == Command::kReport
                           ? "no run is named (strata report RUN)"
                           : fmt::format("--{}{} is missing (strata {} --help lists the "
                                         "options)",
                                         need.name, has_run ? " or --resume RUN" : "",
                                         name_of(command)));
  }
  for (const ExclusivePair& pair : kExclusive) {
    if (says(options, pair.first) && says(options, pair.second)) {
      problems.push_back(
          fmt::format("--{} and --{} {} (give one)", pair.first, pair.second, pair.reason));
    }
  }
  check_schedule(options, problems);
  check_chat(options, problems);
  check_memory(command, options, problems);
  check_ranks(options, problems);
  if (command == Command::kLaunch) check_restarts(options, problems);
  check_lr(options, problems);
  check_optimizer(options, problems);
  if (command == Command::kTrain || command == Command::kPlan) check_groups(options, problems);
  if (command == Command::kInit) check_shape(options, problems);
  if (command == Command::kBench) check_bench(options, problems);
  if (command == Command::kBenchLink) check_link(options, problems);
  return problems;
}

bool may_have_device(Command command, const Options& options) {
  if (command == Command::kBenchKernels) return true;  // the CPU has operands too
  if (options.device != Device::kAuto) return row_of(kind_of(options.device)).discrete;
  return command == Command::kPlan && !options.machine.empty();
}

bool measures_drives(const Options& options) {
  const auto has = [&](const char* mode) {
    return std::ranges::find(options.modes, mode) != options.modes.end();
  };
  return !options.no_checksums && has("read") && has("write") && has("mixed");
}

void refuse_options(const std::vector<std::string>& problems) {
  std::string message = "cannot use the options: ";
  if (problems.size() == 1) throw Error(ErrorCode::kUsage, message + problems[0]);
  message += fmt::format("{} problems", problems.size());
  constexpr size_t kShown = 40;
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i) message += "\n  " + problems[i];
  if (problems.size() > kShown) {
    message += fmt::format("\n  and {} more", problems.size() - kShown);
  }
  throw Error(ErrorCode::kUsage, message);
}

}  // namespace strata::config

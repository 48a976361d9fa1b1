// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_rules.h"

#include <fmt/format.h>

namespace strata::config {
namespace {

struct Required {
  Command command;
  std::string_view name;
};

constexpr Required kRequired[] = {
    {Command::kInit, "data"},  {Command::kInit, "out"},       {Command::kTrain, "model"},
    {Command::kTrain, "data"}, {Command::kTrain, "out"},      {Command::kEval, "model"},
    {Command::kEval, "data"},  {Command::kPlan, "model"},     {Command::kExport, "model"},
    {Command::kExport, "out"}, {Command::kGenerate, "model"},
};

constexpr ExclusivePair kExclusive[] = {{"steps", "epochs"}, {"warmup-steps", "warmup-ratio"}};

void check_schedule(const Options& options, std::vector<std::string>& problems) {
  if (options.steps > 0 && options.warmup_steps > options.steps) {
    problems.push_back(fmt::format("--warmup-steps {} is more than --steps {} (lower it)",
                                   options.warmup_steps, options.steps));
  }
}

void check_memory(const Options& options, std::vector<std::string>& problems) {
  if (options.offload == Offload::kNvme && options.nvme.empty()) {
    problems.push_back("--offload nvme needs a directory (give --nvme DIR)");
  }
  if (options.is_given("nvme-rate") && options.nvme.empty()) {
    problems.push_back("--nvme-rate limits nothing (give --nvme DIR too)");
  }
  if (options.device == Device::kCpu && options.is_given("device-memory")) {
    problems.push_back(
        "--device-memory has no meaning with --device cpu, whose memory is the host's "
        "(use --host-memory)");
  }
}

void check_optimizer(const Options& options, std::vector<std::string>& problems) {
  if (options.optimizer_mode != OptimizerMode::kInBackward) return;
  if (options.clip > 0) {
    problems.push_back(fmt::format(
        "--optimizer-mode in-backward cannot clip: the norm exists only after the backward, and "
        "--clip is {} (give --clip 0, or --optimizer-mode deferred)",
        options.clip));
  }
  if (options.recipe == Recipe::kFp16) {
    problems.push_back(
        "--optimizer-mode in-backward cannot scale the loss, which --recipe fp16 needs "
        "(use --recipe bf16, or --optimizer-mode deferred)");
  }
}

void check_shape(const Options& options, std::vector<std::string>& problems) {
  if (options.hidden % options.heads != 0) {
    problems.push_back(
        fmt::format("--hidden {} is not a multiple of --heads {}", options.hidden, options.heads));
  } else if (options.hidden / options.heads % 2 != 0) {
    problems.push_back(
        fmt::format("--hidden {} over --heads {} is an odd head size; rotary positions "
                    "need an even one",
                    options.hidden, options.heads));
  }
  if (options.kv_heads > 0 && options.heads % options.kv_heads != 0) {
    problems.push_back(fmt::format("--heads {} is not a multiple of --kv-heads {}", options.heads,
                                   options.kv_heads));
  }
}

}  // namespace

std::span<const ExclusivePair> exclusive_options() {
  return kExclusive;
}

std::vector<std::string> find_conflicts(Command command, const Options& options) {
  std::vector<std::string> problems;
  for (const Required& need : kRequired) {
    if (need.command == command && !options.is_given(need.name)) {
      problems.push_back(fmt::format("--{} is missing (strata {} --help lists the options)",
                                     need.name, name_of(command)));
    }
  }
  for (const ExclusivePair& pair : kExclusive) {
    if (options.is_given(pair.first) && options.is_given(pair.second)) {
      problems.push_back(
          fmt::format("--{} and --{} say the same thing (give one)", pair.first, pair.second));
    }
  }
  check_schedule(options, problems);
  check_memory(options, problems);
  check_optimizer(options, problems);
  if (command == Command::kInit) check_shape(options, problems);
  return problems;
}

}  // namespace strata::config

// SPDX-License-Identifier: Apache-2.0
#include "engine/config/idle_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace strata::config {
namespace {

bool is_constant(const Options& options) {
  return options.schedule == Schedule::kConstant;
}

bool only_warms_up(const Options& options) {
  return options.warmup_ratio == 1 || (options.steps > 0 && options.warmup_steps >= options.steps);
}

bool evaluates_nothing(const Options& options) {
  return options.eval_every == 0;
}
bool keeps_best_of_nothing(const Options& options) {
  return evaluates_nothing(options) && options.keep_best;
}
bool samples_nothing(const Options& options) {
  return evaluates_nothing(options) && options.continues_samples();
}

bool decays_nothing(const Options& options) {
  const auto decays = [](const ParameterGroupOptions& group) { return group.weight_decay > 0.0; };
  return options.decay_all && options.weight_decay == 0 &&
         std::none_of(options.groups.begin(), options.groups.end(), decays);
}

bool keeps_lr(const Options& options) {
  return options.lr_scaling == LrScaling::kNone;
}

bool has_one_rank(const Options& options) {
  return options.ranks == 1;
}

bool computes_in_host_memory(const Options& options) {
  return options.device == Device::kCpu;
}

bool has_whole_sequences(const Options& options) {
  return options.context_ranks == 1 && options.mesh.empty();
}

bool has_one_stage(const Options& options) {
  return options.pipeline_ranks == 1;
}

bool has_one_data_rank(const Options& options) {
  return options.data_ranks() == 1;
}

bool has_one_machine(const Options& options) {
  return options.nodes == 1 && options.hosts.empty();
}

bool never_restarts(const Options& options) {
  return options.max_restarts == 0;
}

bool ends_before_a_checkpoint(const Options& options) {
  return options.steps > 0 && options.checkpoint_every > options.steps;
}

bool traces_nothing(const Options& options) {
  return options.steps > 0 && options.trace_from > options.steps;
}

bool has_no_data(const Options& options) {
  return options.data.empty();
}

bool keeps_order(const Options& options) {
  return !options.shuffle;
}

bool is_greedy(const Options& options) {
  return options.temperature == 0;
}

bool has_no_drive(const Options& options) {
  return options.nvme.empty() && options.machine.empty();
}

bool stays_in_memory(const Options& options) {
  return options.offload == Offload::kNone || options.offload == Offload::kHost;
}

// Whether state never moves. It moves to and from a device that has a memory of its own.
bool stays_in_place(const Options& options) {
  const bool on_host = !row_of(kind_of(options.device)).discrete &&
                       (options.device != Device::kAuto || options.machine.empty());
  return on_host && stays_in_memory(options);
}

bool compares_nothing(const Options& options) {
  return !options.compare_fio && !options.compare_checksums;
}

enum class Severity : uint8_t { kHarmless, kMistake };

struct IdleRule {
  uint32_t commands;  // as OptionRow::commands
  std::string_view name;
  bool (*is_idle)(const Options&);
  Severity severity;
  std::string_view why;
};

using enum Severity;

constexpr uint32_t bits_of(std::initializer_list<Command> commands) {
  uint32_t bits = 0;
  for (const Command command : commands) bits |= 1u << static_cast<int>(command);
  return bits;
}
constexpr uint32_t kOfSteps = bits_of({Command::kTrain, Command::kPlan});
constexpr uint32_t kOfRuns =
    bits_of({Command::kTrain, Command::kPlan, Command::kEval, Command::kGenerate});
constexpr std::string_view kOnlyWarmUp = "the warm-up lasts all steps (shorten it)";
constexpr std::string_view kInMemory =
    "--offload none and host keep all state in memory (give --offload auto)";
constexpr std::string_view kGreedy =
    "--temperature 0 takes the most likely token (raise --temperature)";

constexpr IdleRule kIdleRules[] = {
    {kOfSteps, "lr-batch", keeps_lr, kMistake,
     "--lr-scaling none does not scale (give --lr-scaling linear or sqrt)"},
    {kOfSteps, "min-lr-ratio", is_constant, kMistake,
     "--schedule constant stays at its peak (give --schedule linear or cosine)"},
    {kOfSteps, "min-lr-ratio", only_warms_up, kMistake, kOnlyWarmUp},
    {kOfSteps, "schedule", only_warms_up, kHarmless, kOnlyWarmUp},
    {kOfSteps, "decay-all", decays_nothing, kMistake,
     "--weight-decay is 0, so nothing decays (give --weight-decay too)"},
    {kOfSteps, "tensor-ranks", has_one_rank, kHarmless,
     "a single rank has all of every block (give --ranks N)"},
    {kOfSteps, "context-ranks", has_one_rank, kHarmless,
     "a single rank has whole sequences (give --ranks N)"},
    {kOfSteps, "context-exchange", has_whole_sequences, kHarmless,
     "each rank has whole sequences (give --context-ranks N)"},
    {kOfSteps, "pipeline-ranks", has_one_rank, kHarmless,
     "a single rank has all blocks (give --ranks N)"},
    {kOfSteps, "pipeline-chunks", has_one_stage, kHarmless,
     "all blocks are in one stage (give --pipeline-ranks N)"},
    {kOfSteps, "pipeline-schedule", has_one_stage, kHarmless,
     "all blocks are in one stage (give --pipeline-ranks N)"},
    {kOfSteps, "zero-stage", has_one_data_rank, kHarmless,
     "a single rank has data of its own, and shares nothing (raise --ranks)"},
    {kOfSteps, "reduce-dtype", has_one_data_rank, kHarmless,
     "a single rank has data of its own, and exchanges no gradients (raise --ranks)"},
    {kOfSteps, "shard-ranks", has_one_data_rank, kHarmless,
     "a single rank has data of its own, and shares nothing (raise --ranks)"},
    {kOfSteps, "device-exchange", computes_in_host_memory, kHarmless,
     "--device cpu computes in host memory (leave it out)"},
    {kOfSteps, "device-exchange", has_one_rank, kHarmless,
     "a single rank exchanges nothing (give --ranks N)"},
    {bits_of({Command::kTrain}), "collectives", has_one_rank, kHarmless,
     "a single rank exchanges nothing (start more: mpirun -n N strata train)"},
    {bits_of({Command::kPlan}), "epochs", has_no_data, kHarmless,
     "the length of a pass is not known (give --data PATH)"},
    {bits_of({Command::kLaunch}), "min-ranks", never_restarts, kMistake,
     "--max-restarts 0 never restarts (raise it)"},
    {bits_of({Command::kLaunch}), "min-ranks", has_one_machine, kHarmless,
     "a single machine always restarts all of its ranks (give --nodes N)"},
    {kOfSteps, "checkpoint-every", ends_before_a_checkpoint, kHarmless,
     "the run has fewer steps, and writes one checkpoint at its end (lower it to have more)"},
    {bits_of({Command::kTrain}), "eval-data", evaluates_nothing, kMistake,
     "nothing is evaluated (give --eval-every N)"},
    {bits_of({Command::kTrain}), "eval-fraction", evaluates_nothing, kMistake,
     "nothing is evaluated (give --eval-every N)"},
    {bits_of({Command::kTrain}), "keep-best", keeps_best_of_nothing, kMistake,
     "nothing is evaluated (give --eval-every N)"},
    {bits_of({Command::kTrain}), "sample-prompts", samples_nothing, kMistake,
     "nothing is evaluated (give --eval-every N)"},
    {bits_of({Command::kTrain}), "patience", evaluates_nothing, kMistake,
     "nothing is evaluated (give --eval-every N)"},
    {bits_of({Command::kTrain}), "trace-from", traces_nothing, kMistake,
     "the run has fewer steps (lower it, or raise --steps)"},
    {bits_of({Command::kTrain}), "seed", keeps_order, kHarmless,
     "with --shuffle off nothing is random (leave it out, or give --shuffle on)"},
    {bits_of({Command::kGenerate}), "seed", is_greedy, kHarmless, kGreedy},
    {bits_of({Command::kGenerate}), "top-k", is_greedy, kMistake, kGreedy},
    {bits_of({Command::kGenerate}), "top-p", is_greedy, kMistake, kGreedy},
    {kOfRuns, "io", has_no_drive, kHarmless, "no drive is used (give --nvme DIR)"},
    {kOfRuns, "io", stays_in_memory, kHarmless, kInMemory},
    {kOfRuns, "nvme", stays_in_memory, kHarmless, kInMemory},
    {kOfRuns, "nvme-rate", stays_in_memory, kHarmless, kInMemory},
    {kOfRuns, "prefetch-depth", stays_in_place, kHarmless, kInMemory},
    {bits_of({Command::kBench}), "rounds", compares_nothing, kMistake,
     "nothing is compared (give --compare-fio or --compare-checksums)"},
};

}  // namespace

std::vector<IdleOption> find_idle_options(Command command, const Options& options) {
  std::vector<IdleOption> idle;
  for (const IdleRule& rule : kIdleRules) {
    const bool applies = (rule.commands & bits_of({command})) != 0;
    const bool is_known = !idle.empty() && idle.back().name == rule.name;
    if (!applies || is_known || !options.is_given(rule.name) || !rule.is_idle(options)) continue;
    idle.push_back({rule.name, rule.severity == kMistake,
                    fmt::format("--{} has no effect: {}", rule.name, rule.why)});
  }
  return idle;
}

}  // namespace strata::config

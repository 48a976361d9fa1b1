// SPDX-License-Identifier: Apache-2.0
// A plan as lines for people, each with its explanation.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/model/external.h"
#include "engine/model/stage.h"
#include "engine/train/plan_elsewhere.h"
#include "engine/train/plan_purposes.h"
#include "engine/train/plan_report.h"
#include "engine/train/plan_table_lines.h"

namespace strata::train {
namespace {

using plan::Arena;

struct TierText {
  Arena arena;
  const char* name;
  const char* why;
};

constexpr TierText kTiers[] = {
    {Arena::kDevice, "device", "memory of the device, used of the budget (--device-memory)"},
    {Arena::kHost, "host", "main memory, used of the budget (--host-memory)"},
    {Arena::kNvme, "nvme", "scratch on the drives of --nvme, used of the budget"},
};

int64_t used_bytes(const plan::Plan& plan, Arena arena) {
  return plan.arenas.bytes[static_cast<size_t>(arena)];
}

// What the buffers of a tier are between.
const char* neighbours_of(const plan::Plan& plan, Arena arena) {
  if (arena == Arena::kDevice) return " between host and device";
  if (arena != Arena::kHost) return "";
  if (used_bytes(plan, Arena::kNvme) > 0) return " between drives and host";
  return used_bytes(plan, Arena::kDevice) > 0 ? " between host and device" : "";
}

// What a budget leaves free, where no option sets it.
std::string margin_text(const RunPlan& run, Arena arena) {
  const auto text = [](double share, const char* whole, const char* option) {
    return fmt::format(" ({:.0f}% of {}{})", 100 * share, whole, option);
  };
  if (arena == Arena::kNvme) return text(kShareOfFreeSpace, "the free space", "");
  if (arena == Arena::kDevice && run.device_is_share) {
    return text(kShareOfDevice, "the device's memory", "; --device-memory sets it");
  }
  if (arena == Arena::kHost && run.host_is_share) {
    return text(kShareOfUsable, "the available memory", "; --host-memory sets it");
  }
  return "";
}

// How much of a tier is used, of its budget. --host-memory is the budget of a whole machine; the
// other budgets are those of a rank.
std::string used_text(const RunPlan& run, Arena arena) {
  const plan::Plan& plan = run.ranks.front();
  const int64_t budget = plan.arenas.budget[static_cast<size_t>(arena)];
  const bool is_alone = run.ranks_on_node == 1;
  const std::string rank = run.input.mesh.pipeline > 1 ? " for each rank of the first stage"
                           : run.input.mesh.world > 1  ? " for each rank"
                                                       : "";
  if (arena == Arena::kHost && is_alone) {
    const std::string limit = run.host_budget == plan::kNoLimit
                                  ? ", without a limit"
                                  : " of " + format_bytes(run.host_budget);
    return format_bytes(used_bytes(plan, arena) + run.outside_bytes) + limit + rank +
           margin_text(run, arena);
  }
  const bool is_assumed = arena == Arena::kNvme && budget * run.ranks_on_node > kPlentyOfSpace / 2;
  const bool has_budget = arena != Arena::kHost && !is_assumed && budget != plan::kNoLimit;
  return format_bytes(used_bytes(plan, arena)) +
         (has_budget ? " of " + format_bytes(budget) + rank + margin_text(run, arena) : rank);
}

// What of a budget is left, where that is not little, and why.
void add_free(const RunPlan& run, Arena arena, PlanLines& table) {
  const plan::Plan& plan = run.ranks.front();
  const int64_t budget = plan.arenas.budget[static_cast<size_t>(arena)];
  const int64_t left = budget - used_bytes(plan, arena);
  if (arena == Arena::kNvme || budget == plan::kNoLimit || left <= budget / 20) return;
  if (run.candidates < 2) return;
  table.add_bytes(left, "free: no plan that was compared is faster with it",
                  "what is left may be too little for the next thing that is worth keeping there");
}

// What other stages than the first have in a tier.
void add_stages(const RunPlan& run, Arena arena, PlanLines& table) {
  const bool with_program = arena == Arena::kHost && run.ranks_on_node == 1;  // as the first line
  std::vector<int64_t> others;
  for (const PlanTotals::ArenaBytes& bytes : run.totals.of_stages) {
    others.push_back(bytes[static_cast<size_t>(arena)] + (with_program ? run.outside_bytes : 0));
  }
  if (others.size() < 2) return;
  const auto [least, most] = std::minmax_element(others.begin() + 1, others.end());
  const std::string upto = *least == *most ? "" : " to " + format_bytes(*most);
  const bool is_one = others.size() == 2;
  table.add("",
            fmt::format("{:>11}{} for each rank of the other {}", format_bytes(*least), upto,
                        is_one ? "stage" : "stages"),
            "stages differ in their blocks, and in how many windows wait in them");
}

// Of the ranks of the machine that uses most.
int64_t bytes_on_machine(const RunPlan& run, Arena arena) {
  const plan::Mesh& mesh = run.input.mesh;
  int64_t most = 0;
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < mesh.world; ++rank) {
    if (rank % run.ranks_on_node == 0) bytes = 0;
    const auto stage = static_cast<size_t>(rank / mesh.stage_ranks());
    bytes += run.totals.of_stages[stage][static_cast<size_t>(arena)];
    most = std::max(most, bytes);
  }
  return most;
}

// What is smaller than a hundredth of its tier is one line, unless lines are explained.
void add_tier(const RunPlan& run, const TierText& tier, bool explains, PlanLines& table) {
  const plan::Plan& plan = run.ranks.front();
  const int64_t used = used_bytes(plan, tier.arena);
  const bool is_host = tier.arena == Arena::kHost;
  const auto uses = [&](const PlanTotals::ArenaBytes& bytes) {
    return bytes[static_cast<size_t>(tier.arena)] > 0;
  };
  const bool is_used = used > 0 || std::ranges::any_of(run.totals.of_stages, uses);
  if (!is_used && !is_host) return;
  table.add(tier.name, fmt::format("{:>11}", used_text(run, tier.arena)), tier.why);
  int64_t small_bytes = 0;
  for (const ShownPurpose& shown : shown_purposes(plan, tier.arena)) {
    if (!explains && shown.bytes < used / 100) {
      small_bytes += shown.bytes;
    } else {
      const bool is_buffer = shown.name.starts_with("buffer for");
      const char* between = is_buffer ? neighbours_of(plan, tier.arena) : "";
      table.add_bytes(shown.bytes, shown.name + between, shown.why);
    }
  }
  if (small_bytes > 0) table.add_bytes(small_bytes, "all else, each below 1%", "");
  if (is_host && plan.arenas.kept_in_gradients > 0) {
    table.add_bytes(plan.arenas.kept_in_gradients,
                    "kept activations, where gradients lie at other times (counted there)",
                    "they wait for the backward in memory that gradients need only from the "
                    "backward to the update");
  }
  constexpr const char* kProgram = "program, libraries, tokens, checksums (an estimate)";
  constexpr const char* kProgramWhy =
      "its code and libraries, the stacks of its threads, the tokens of the data, the plan, and "
      "checksums of all that is on drives";
  const int64_t ranks = run.ranks_on_node;
  if (is_host && ranks == 1) table.add_bytes(run.outside_bytes, kProgram, kProgramWhy);
  add_free(run, tier.arena, table);
  add_stages(run, tier.arena, table);
  if (ranks == 1) return;
  const int64_t machine = bytes_on_machine(run, tier.arena) + (is_host ? run.outside_bytes : 0);
  table.add("",
            fmt::format("{:>11} for the {} of a machine",
                        format_bytes(machine) + (is_host && run.host_budget != plan::kNoLimit
                                                     ? " of " + format_bytes(run.host_budget)
                                                     : ""),
                        counted(ranks, "rank")) +
                (is_host ? margin_text(run, tier.arena) : ""),
            "what its ranks use together, and in host memory the program");
  if (is_host) table.add_bytes(run.outside_bytes, kProgram, kProgramWhy);
}

std::string model_text(const RunPlan& run, const PlanReport& report) {
  const Recipe recipe = run.ranks.front().recipe;
  std::string text = format_count(report.parameters) + " parameters";
  if (report.trained_parameters < report.parameters) {
    text += fmt::format(", {} of them trained", format_count(report.trained_parameters));
  }
  return text + (recipe == Recipe::kFp32
                     ? ", fp32"
                     : fmt::format(", {} weights, fp32 optimizer state", name_of(recipe)));
}

// What a trained parameter takes, wherever it lies.
std::string state_text(Recipe recipe, const PlanReport& report) {
  const int64_t rest = width_of(Plane::kLo, recipe);
  const double all = report.state_bytes_per_parameter;
  return fmt::format(
      "{:.0f} bytes a trained parameter: {} ({} weights {}{}, Adam's moments {}, fp32 gradients "
      "{})",
      all, format_bytes(static_cast<int64_t>(all * report.trained_parameters)), name_of(recipe),
      width_of(Plane::kHi, recipe),
      rest == 0             ? ""
      : scales_loss(recipe) ? fmt::format(", their fp32 values {}", rest)
                            : fmt::format(", the rest of their fp32 values {}", rest),
      width_of(Plane::kExpAvg, recipe) + width_of(Plane::kExpAvgSq, recipe), sizeof(float));
}

struct TensorCount {
  int64_t tensors = 0;
  int64_t numel = 0;
  std::string first;  // its name

  void add(const model::Parameter& parameter) {
    if (tensors++ == 0) first = parameter.name;
    numel += parameter.numel;
  }
  std::string text() const {
    return fmt::format("{}, {} parameters", counted(tensors, "tensor"),
                       format_count(static_cast<double>(numel)));
  }
};

// What each [[group]] has, and what is not trained. A group is two of the model's: with and without
// weight decay.
void add_groups(const model::ModelSpec& spec, PlanLines& table) {
  constexpr size_t kOwn = 2;  // groups of the model itself
  TensorCount frozen;
  std::map<std::string, TensorCount> trained;
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      const std::string& name = spec.groups[static_cast<size_t>(parameter.group)].name;
      (parameter.frozen ? frozen : trained[name]).add(parameter);
    }
  }
  const bool are_numbers = model::is_external(spec);  // the caller's, one for each tensor or so
  for (size_t k = kOwn; k < spec.groups.size() && !are_numbers; ++k) {
    const model::ParameterGroup& group = spec.groups[k];
    if (trained[group.name].tensors == 0 || group.name == spec.groups[k - 1].name) continue;
    std::string text = fmt::format("\"{}\": {}", group.name, trained[group.name].text());
    if (group.lr_factor != 1) text += fmt::format(", learning rate x {}", group.lr_factor);
    if (group.weight_decay) text += fmt::format(", weight decay {}", *group.weight_decay);
    table.add("group", text, "what a [[group]] of the file matches");
  }
  if (frozen.tensors == 0) return;
  table.add("frozen", fmt::format("{}, such as {}", frozen.text(), frozen.first),
            "what --freeze or a [[group]] leaves out of training");
}

// Where the sequences are that are computed at a time.
std::string place_text(const RunPlan& run) {
  const plan::Mesh& mesh = run.input.mesh;
  const bool groups = mesh.batch_ranks() > 1;
  std::string text = groups ? fmt::format(" on each of {} ", mesh.batch_ranks()) : " on ";
  std::vector<std::string> axes;
  if (mesh.context > 1) axes.push_back(fmt::format("{} context ", mesh.context));
  if (mesh.tensor > 1) axes.push_back(fmt::format("{} tensor ", mesh.tensor));
  if (mesh.pipeline > 1) axes.push_back(fmt::format("{} pipeline ", mesh.pipeline));
  if (groups && !axes.empty()) text += "groups of ";
  text += fmt::format("{}ranks of ", fmt::join(axes, "x "));
  text += counted(ceil_div(mesh.world, run.ranks_on_node), "machine");
  if (run.input.device.discrete) {
    text += run.input.device.peers ? "; their devices send each other memory"
                                   : "; their devices exchange through the host";
  }
  if (mesh.context == 1) return text;
  return text + (run.input.shape.swaps_heads ? "; context ranks swap heads"
                                             : "; context ranks gather keys and values");
}

// What the stages have, of many the first two and the last, and how micro-batches pass them.
std::string stages_text(const RunPlan& run) {
  constexpr int kShown = 4;
  const plan::Mesh& mesh = run.input.mesh;
  std::string text;
  for (int stage = 0; stage < mesh.pipeline; ++stage) {
    const bool left_out = mesh.pipeline > kShown && stage > 1 && stage + 1 < mesh.pipeline;
    if (left_out && stage > 2) continue;
    if (stage > 0) text += ", ";
    text += left_out ? fmt::format("{} more", mesh.pipeline - 3)
                     : model::units_text(run.spec_of(stage * mesh.stage_ranks()));
  }
  const plan::Windows& windows = run.input.windows;
  const int size = run.input.micro_batches / windows.count;
  const char* each = windows.count > 1 ? " each" : "";
  return fmt::format("{}; {} of {}{}, {}", text, counted(windows.count, "window"),
                     counted(size, "micro-batch"), each, plan::name_of(windows.order)) +
         fmt::format("; idle for others {} of a step",
                     format_share(1 - run.slowest_stage_s / run.predicted_step_s));
}

std::string batch_text(const RunPlan& run, const PlanReport& report) {
  if (model::is_external(*run.spec)) {
    return counted(run.input.micro_batches, "micro-batch") + " that the caller computes";
  }
  const model::BatchShape& shape = run.input.shape;
  const auto tokens = static_cast<int64_t>(report.tokens);
  return fmt::format("{} {}: {} of {}, {} at a time", format_count(report.tokens),
                     plural(tokens, "token"), counted(tokens / shape.whole_length(), "sequence"),
                     shape.whole_length(), shape.rows) +
         (run.input.mesh.world == 1 ? "" : place_text(run));
}

void append_part(std::string_view name, double seconds, std::string& text) {
  if (seconds > 0)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_duration(seconds));
}

// How long a part of the machine stands still in a step, and which others work then: why a step is
// longer than its longest part.
void add_waits(const BusyPart& part, const plan::SimulationResult& simulated, bool is_compute,
               PlanLines& table) {
  const double waits_s = std::max(0.0, simulated.step_s - part.seconds);
  const bool is_little = waits_s < simulated.step_s / 100;
  if (is_little && !is_compute) return;
  std::string others;
  for (const BusyPart& other : parts_of(simulated)) {
    const double seconds = simulated.any_works_s(part.workers | other.workers) - part.seconds;
    if (seconds > waits_s / 20) append_part(other.name, seconds, others);
  }
  const std::string_view name = part.name;
  table.add(
      "",
      fmt::format("{} wait{} {}{}", name, name.ends_with('s') ? "" : "s", format_duration(waits_s),
                  is_little || others.empty() ? "" : ", meanwhile: " + others),
      is_compute ? "how long arithmetic stands still because something else is not ready"
                 : "why the step is longer than its longest part, which waits for others");
}

// "86% of the time", of each part that limits a step.
std::string busy_text(const plan::SimulationResult& simulated) {
  std::string text;
  const std::vector<BusyPart> limits = limits_of(simulated);
  for (const BusyPart& part : limits) {
    text += fmt::format("{}{:.0f}%", text.empty() ? "" : " and ",
                        100 * part.seconds / simulated.step_s);
  }
  return text + " of the time" +
         (limits.size() > 1 ? ", because each waits for the other at times" : "");
}

void add_time(const RunPlan& run, const PlanReport& report, PlanLines& table) {
  const bool is_alone = run.input.mesh.world == 1;
  const plan::SimulationResult& simulated = report.simulated;
  const std::vector<BusyPart> parts = parts_of(simulated);
  table.add(
      "step",
      fmt::format("{} (predicted){}; limited by {}, busy {}", format_duration(simulated.step_s),
                  model::is_external(*run.spec)
                      ? ""
                      : fmt::format(", {} tokens/s{}", format_count(report.tokens_per_s()),
                                    of_all_ranks(run)),
                  report.bottleneck, busy_text(simulated)),
      "the time of one step, and the resource that is busy for most of it; collectives are what "
      "ranks send each other");
  const double read_s = simulated.any_works_s(plan::kDrivesRead);
  const double write_s = simulated.any_works_s(plan::kDrivesWrite);
  std::string text;
  for (const BusyPart& part : parts) {
    append_part(part.name, part.seconds, text);
    if ((part.workers & plan::kDrivesRead) == 0 || read_s == 0 || write_s == 0) continue;
    std::string how;
    const auto add = [&](double seconds, std::string_view what) {
      if (seconds < part.seconds / 100) return;
      how += fmt::format("{}{} {}", how.empty() ? "" : ", ", format_duration(seconds), what);
    };
    add(part.seconds - write_s, "only reads");
    add(part.seconds - read_s, "only writes");
    add(read_s + write_s - part.seconds, "both");
    text += " (" + how + ")";
  }
  table.add(
      "", fmt::format("parts that overlap{}: {}", is_alone ? "" : ", on each rank", text),
      "how long each resource of a rank works in a step; these times overlap, and so do reads and "
      "writes, which then share what the drives can do");
  if (report.recompute_s > 0) {
    table.add("",
              fmt::format("{} of compute is for activations that the backward computes again",
                          format_duration(report.recompute_s)),
              "what keeping all activations would save of the time that compute works");
  }
  for (const BusyPart& part : parts) {
    const bool is_compute = part.workers == plan::kComputeWorks;
    const bool limits = &part - parts.data() < std::ssize(limits_of(simulated));
    if (is_compute || limits) add_waits(part, simulated, is_compute, table);
  }
}

}  // namespace

std::string plan_table(const RunPlan& run, const PlanReport& report, bool explains) {
  const plan::Plan& plan = run.ranks.front();
  PlanLines table(explains);
  table.add("model", model_text(run, report), "what is trained, and its number formats");
  add_groups(*run.spec, table);
  table.add("state", state_text(plan.recipe, report),
            "wherever they lie; below, optimizer state is the moments and the rest of the weights");
  table.add("batch", batch_text(run, report), "what one step learns from");
  if (const Payload payload = run.input.mesh.reduce_dtype;
      payload != Payload::kF32 && run.input.mesh.reductions() > 0) {
    table.add("gradients",
              fmt::format("rounded to {} before they go to other ranks, and summed in fp32",
                          name_of(payload)),
              fmt::format("--reduce-dtype {}, which is less traffic and changes numbers",
                          name_of(payload)));
  }
  if (explains) {
    table.add(
        "search",
        fmt::format("fastest of {}; it gave memory {}", counted(run.candidates, "plan"),
                    run.placement_name),
        "how many plans the planner compared, and in which order this one was made; what lies "
        "where in the end is said below");
  }
  if (run.input.mesh.pipeline > 1) {
    table.add(
        "stages", stages_text(run),
        "the blocks of each pipeline rank, how micro-batches pass them, and how much of a step "
        "the slowest stage waits for others");
  } else if (run.input.windows.count > 1) {
    const plan::Windows& windows = run.input.windows;
    table.add("windows",
              fmt::format("{} of {}", windows.count,
                          counted(run.input.micro_batches / windows.count, "micro-batch")),
              "how micro-batches pass the model: each window goes forward and back before the next "
              "one begins, so that memory need not hold the activations of all");
  }
  table.add("update",
            plan.update().waits
                ? "weights change just before they are used next (--optimizer-mode deferred)"
                : "weights change in the backward, as soon as a gradient is whole "
                  "(--optimizer-mode in-backward)",
            "when the optimizer changes the weights; the results are the same");
  for (const TierText& tier : kTiers) add_tier(run, tier, explains, table);
  if (report.totals.file_bytes > 0) {
    table.add("files",
              fmt::format("{:>11}  of frozen weights are read from the model's files each step",
                          format_bytes(report.totals.file_bytes)),
              "weights that are not trained and do not fit in memory");
  }
  add_time(run, report, table);
  add_drives_and_run(run, report, table);
  return std::move(table).text();
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// Why a run does not fit, and the least that does, in terms of the user's options.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {
namespace {

// The free space of a machine's drives that a rank's scratch needs.
int64_t free_space_for(int64_t bytes, int64_t ranks) {
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(bytes) * static_cast<double>(ranks) / kShareOfFreeSpace));
}

// The least that fits.
struct Least {
  int64_t host_memory = 0;  // 0: none is enough
  int64_t free_space = 0;   // on drives, that goes with it
};

// No host memory is enough where an emulated device gets less memory when the host gets more.
Least least_of(plan::PlanInput input, int64_t outside, const config::Options& options,
               const RunFacts& facts) {
  const int64_t ranks = ranks_on_node(options, facts);
  input.host_budget = input.device_budget = plan::kNoLimit;
  const auto least =
      plan::bytes_of(input, plan::least_placement(input, planner_options(options, facts)));
  const int64_t free_space = free_space_for(least[static_cast<size_t>(plan::Arena::kNvme)], ranks);
  const int64_t arenas = least[static_cast<size_t>(plan::Arena::kHost)];
  int64_t enough = ceil_div(arenas * ranks + outside, kMiB);
  if (!input.device.discrete) return {enough * kMiB, free_space};
  const auto fits_in = [&](int64_t mib) {
    config::Options trial = options;
    trial.host_memory = mib * kMiB;
    input.host_budget = std::max<int64_t>(0, trial.host_memory - outside) / ranks;
    input.device_budget = device_budget_of(trial, facts);
    return plan::fits(input, planner_options(options, facts));
  };
  if (!fits_in(enough)) return {};
  constexpr int64_t kPrecision = 2000;  // of large sizes, which are named with few digits
  for (int64_t little = 0; enough - little > 1 + enough / kPrecision;) {
    const int64_t mib = little + (enough - little) / 2;
    (fits_in(mib) ? enough : little) = mib;
  }
  return {enough * kMiB, free_space};
}

// Of the stage that needs most: the ranks of a machine get equal parts.
Least least_of_stages(const RunPlan& run, int64_t nvme_budget, const Passes& passes,
                      const config::Options& options, const RunFacts& facts) {
  Least most;
  int64_t outside = 0;  // of a run, by its first stage
  for (int stage = 0; stage < run.input.mesh.pipeline; ++stage) {
    plan::PlanInput input = input_of_stage(stage, run);
    input.nvme_budget = nvme_budget;
    input.windows = passes.windows;
    input.mode = passes.mode;
    if (stage == 0) outside = all_outside_bytes(input, options, facts);
    const Least one = least_of(input, outside, options, facts);
    if (one.host_memory == 0) return {};
    most.host_memory = std::max(most.host_memory, one.host_memory);
    most.free_space = std::max(most.free_space, one.free_space);
  }
  return most;
}

// With these options and `nvme_budget` bytes of NVMe, however micro-batches pass the model.
Least least_of(const RunPlan& run, const config::Options& options, const RunFacts& facts,
               int64_t nvme_budget) {
  Least least;
  for (const Passes& passes : passes_of(run, options)) {
    const Least one = least_of_stages(run, nvme_budget, passes, options, facts);
    const bool is_less = least.host_memory == 0 || one.host_memory < least.host_memory;
    if (one.host_memory > 0 && is_less) least = one;
  }
  return least;
}

// The flags that would fit.
struct LeastFlags {
  std::string text;
  bool nvme_helps = false;      // at least by a twentieth
  std::string without_offload;  // empty: --offload keeps nothing off drives
};

LeastFlags least_flags(const RunPlan& run, const config::Options& options, const RunFacts& facts,
                       const plan::DoesNotFit& why) {
  config::Options wanted = options;
  std::string device;
  for (const plan::Shortage& shortage : why.shortages()) {
    if (shortage.arena != plan::Arena::kDevice) continue;
    device = size_option(shortage.need_bytes);
    wanted.device_memory = *parse_bytes(device);
    device = " --device-memory " + device;
  }
  const auto flags = [&](int64_t bytes) {
    return bytes == 0 ? std::string() : "--host-memory " + size_option(bytes) + device;
  };
  const bool has_drives = run.input.nvme_budget > 0;
  const int64_t here = least_of(run, wanted, facts, run.input.nvme_budget).host_memory;
  const Least roomy = least_of(run, wanted, facts, plan::kNoLimit);
  LeastFlags flags_of;
  flags_of.text = flags(here);
  flags_of.nvme_helps =
      roomy.host_memory > 0 && (here == 0 || roomy.host_memory <= here - here / 20);
  if (flags_of.nvme_helps && planner_options(options, facts).may_use_nvme) {
    flags_of.text +=
        fmt::format("{}{} with {}{} of free space{}", here == 0 ? "" : ", or ",
                    flags(roomy.host_memory), has_drives ? "" : "NVMe and ",
                    format_bytes_up(roomy.free_space), has_drives ? " on the drives" : " there");
  }
  if (planner_options(options, facts).avoids_nvme && flags_of.nvme_helps) {
    wanted.offload = config::Offload::kAuto;
    const Least free = least_of(run, wanted, facts, plan::kNoLimit);
    flags_of.without_offload =
        fmt::format("; without --offload, {} with {} of free space on drives",
                    flags(free.host_memory), format_bytes_up(free.free_space));
  }
  return flags_of;
}

// What of a refused run are keys and values; empty without a cache.
std::string cache_note(const plan::PlanInput& input) {
  if (!input.shape.is_cached()) return "";
  int64_t bytes = 0;
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    bytes += model::cache_bytes(*input.spec, s, input.shape, input.device);
  }
  return fmt::format(
      "{} of what is needed is for keys and values of {} of up to {} tokens (--micro-batch and "
      "--max-new-tokens lower it); ",
      format_bytes(bytes), counted(input.shape.cache_rows, "text"), input.shape.cache_positions);
}

}  // namespace

int64_t missing_bytes(const plan::DoesNotFit& why, const RunPlan& run) {
  int64_t bytes = 0;
  for (const plan::Shortage& shortage : why.shortages()) {
    bytes += shortage.arena == plan::Arena::kHost
                 ? shortage.need_bytes * run.ranks_on_node + run.outside_bytes - run.host_budget
                 : shortage.need_bytes - shortage.has_bytes;
  }
  return bytes;
}

void LeastRefusal::add(const plan::DoesNotFit& other, const RunPlan& run) {
  const int64_t bytes = missing_bytes(other, run);
  if (why && bytes >= missing) return;
  why.emplace(other);
  missing = bytes;
  input = run.input;
}

namespace {

// The refusal of the stage of a pipeline that lacks most.
plan::DoesNotFit worst_of_stages(const RunPlan& run, const config::Options& options,
                                 const RunFacts& facts, const plan::DoesNotFit& why) {
  plan::DoesNotFit worst = why;
  for (int stage = 0; run.input.mesh.pipeline > 1 && stage < run.input.mesh.pipeline; ++stage) {
    try {
      plan::candidates(input_of_stage(stage, run), planner_options(options, facts));
    } catch (const plan::DoesNotFit& other) {
      if (missing_bytes(other, run) > missing_bytes(worst, run)) worst = other;
    }
  }
  return worst;
}

}  // namespace

void explain_refusal(const RunPlan& run, const config::Options& options, const RunFacts& facts,
                     const plan::DoesNotFit& of_stage) {
  const plan::DoesNotFit why = worst_of_stages(run, options, facts, of_stage);
  const bool lacks_host = why.lacks(plan::Arena::kHost);
  if (!lacks_host && !why.lacks(plan::Arena::kNvme)) throw why;
  std::vector<plan::Shortage> shortages = why.shortages();
  bool program_is_much = false;  // of the host memory that is needed
  for (plan::Shortage& shortage : shortages) {
    if (shortage.arena == plan::Arena::kHost) {
      shortage.need_bytes = shortage.need_bytes * run.ranks_on_node + run.outside_bytes;
      shortage.has_bytes = run.host_budget;
      program_is_much = run.outside_bytes > shortage.need_bytes / 20;
    } else if (shortage.arena == plan::Arena::kNvme) {
      shortage.need_bytes = free_space_for(shortage.need_bytes, run.ranks_on_node);
      shortage.has_bytes = facts.nvme_free_bytes;
    }
  }
  const LeastFlags least = least_flags(run, options, facts, why);
  std::string budget;
  if (is_beyond_machine(options, facts)) {
    budget = fmt::format("--host-memory is {}, more than there is ({}); ",
                         format_bytes(options.host_memory), facts.limits.usable_reason());
  } else if (run.host_is_share) {
    budget = fmt::format("without --host-memory a run may use {:.0f}% of the available {}; ",
                         100 * kShareOfUsable, format_bytes(facts.limits.usable_bytes()));
  }
  if (program_is_much) {
    budget = fmt::format(
        "{} of what is needed is for the program itself (code and libraries, "
        "threads, tokens, checksums, the plan); {}",
        format_bytes(run.outside_bytes), budget);
  }
  if (lacks_host) budget = cache_note(run.input) + budget;
  const char* with_what = options.offload == config::Offload::kAuto ? "" : "with this --offload ";
  throw plan::DoesNotFit(
      why, std::move(shortages), least.nvme_helps,
      budget + (least.text.empty() ? "no --host-memory leaves enough to the emulated device"
                                   : fmt::format("{}the least that fits is {}{}", with_what,
                                                 least.text, least.without_offload)));
}

}  // namespace strata::train

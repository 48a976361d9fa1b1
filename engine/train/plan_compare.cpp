// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/units.h"
#include "engine/plan/refusal.h"
#include "engine/train/plan_elsewhere.h"
#include "engine/train/plan_variant.h"

namespace strata::train {
namespace {

using config::Options;
using plan::Arena;

// Collects variants of a basis. Each is planned as if for another machine, because it may have more
// memory and drives than this one.
class Variants {
 public:
  explicit Variants(const PlanBasis& basis) : basis_(basis) {}

  using Change = std::function<void(Options&, RunFacts&)>;
  Variant& add(Compared compared, const Change& change) {
    Variant variant = {std::move(compared), basis_.options, basis_.facts};
    variant.facts.elsewhere = true;
    variant.facts.only_rank = 0;
    change(variant.options, variant.facts);
    list_.push_back(std::move(variant));
    return list_.back();
  }
  std::vector<Variant> take() { return std::move(list_); }

 private:
  const PlanBasis& basis_;
  std::vector<Variant> list_;
};

bool is_discrete(const Options& options) {
  return config::row_of(config::kind_of(options.device)).discrete;
}

Compared strategy(std::string options, std::string remark) {
  return {.kind = ComparedKind::kStrategy, .name = std::move(options), .remark = std::move(remark)};
}

Compared what_if(std::string name) {
  return {.kind = ComparedKind::kWhatIf, .name = std::move(name)};
}

int64_t scaled(double factor, int64_t bytes) {
  constexpr double kMost = 9e18;  // below 2^63
  return static_cast<int64_t>(std::min(kMost, factor * static_cast<double>(bytes)));
}

// One drive more of the kind that `count` drives are.
void add_drive(int64_t count, RunFacts& facts) {
  config::Machine& machine = facts.machine;
  const double factor = static_cast<double>(count + 1) / static_cast<double>(count);
  machine.nvme_count = count + 1;
  for (double* figure : {&machine.nvme_read_bytes_per_s, &machine.nvme_write_bytes_per_s,
                         &machine.nvme_mixed_bytes_per_s, &machine.nvme_rated_write_bytes}) {
    *figure *= factor;
  }
  machine.nvme_weights.clear();
  facts.nvme_free_bytes = scaled(factor, facts.nvme_free_bytes);
  machine.nvme_bytes = scaled(factor, machine.nvme_bytes);
}

bool has_drive_figures(const config::Machine& machine) {
  return machine.nvme_mixed_bytes_per_s > 0;
}

// Drives for a run that has none: those of the machine, or one of a laptop.
void add_first_drive(Options& options, RunFacts& facts) {
  config::Machine& machine = facts.machine;
  if (!has_drive_figures(machine)) {
    machine.nvme_count = 1;
    machine.nvme_bytes = 2'000'000'000'000;
    machine.nvme_read_bytes_per_s = 6.5e9;
    machine.nvme_write_bytes_per_s = 3.4e9;
    machine.nvme_mixed_bytes_per_s = 4.5e9;
    machine.nvme_latency_s = 2e-4;
    machine.nvme_rated_write_bytes = 1.2e15;
    machine.cpu_s_per_io_gb = 0.03;
    if (machine.checksum_bytes_per_s <= 0) machine.checksum_bytes_per_s = 10e9;
  }
  machine.nvme_weights.clear();
  options.offload = config::Offload::kAuto;
  options.nvme = {"DIR"};
  facts.nvme_free_bytes = machine.nvme_bytes > 0 ? machine.nvme_bytes : kPlentyOfSpace;
}

// The memory of a node for `factor` times the budget of the basis.
void scale_host(double factor, int64_t budget, Options& options, RunFacts& facts) {
  options.host_memory = scaled(factor, budget);
  facts.host_budget = 0;
  facts.limits.cgroup_limit_bytes = facts.limits.cgroup_free_bytes = std::nullopt;
  facts.limits.address_space_bytes = std::nullopt;
  facts.limits.memory_total_bytes = facts.limits.memory_available_bytes =
      std::max(facts.limits.memory_available_bytes, options.host_memory);
}

void set_ranks(int64_t ranks, Options& options, RunFacts& facts) {
  options.ranks = ranks;
  if (facts.ranks_on_node > 0) {
    facts.ranks_on_node = std::min(ranks, std::max<int64_t>(1, facts.machine.device_count));
  }
}

void add_strategies(const PlanBasis& basis, Variants& variants) {
  using namespace config;
  const auto with = [](Offload offload) {
    return [=](Options& options, RunFacts&) { options.offload = offload; };
  };
  if (is_discrete(basis.options)) {
    variants.add(strategy("--offload none", "everything in device memory"), with(Offload::kNone));
  }
  variants.add(strategy("--offload host", "no state on drives"), with(Offload::kHost));
  const char* const on_drives = "state on drives where memory does not suffice";
  if (basis.options.nvme.empty()) {
    variants.add(strategy("--nvme DIR", on_drives), add_first_drive);
  } else {
    variants.add(strategy("--offload auto", on_drives), with(Offload::kAuto));
  }
  variants.add(strategy("--activations recompute", "the backward computes activations again"),
               [](Options& options, RunFacts&) { options.activations = Activations::kRecompute; });
  variants.add(strategy("--activations keep", "the forward keeps activations"),
               [](Options& options, RunFacts&) { options.activations = Activations::kKeep; });
  if (basis.options.clip > 0 && !scales_loss(basis.options.recipe)) {
    variants.add(strategy("--optimizer-mode in-backward --clip 0", "gradients are not clipped"),
                 [](Options& options, RunFacts&) {
                   options.optimizer_mode = OptimizerMode::kInBackward;
                   options.clip = 0;
                 });
  }
  if (basis.options.data_ranks() == 1) return;
  constexpr const char* kShared[] = {"every rank has all state", "ranks share the optimizer state",
                                     "ranks share it and the gradients",
                                     "ranks share it, the gradients and the weights"};
  for (int stage = 0; stage <= 3; ++stage) {
    variants.add(strategy(fmt::format("--zero-stage {}", stage), kShared[stage]),
                 [&](Options& options, RunFacts&) { options.zero_stage = stage; });
  }
}

// Memory and drives.
void add_hardware(const PlanBasis& basis, bool also_less, Variants& variants) {
  const int64_t budget = host_budget_of(basis.options, basis.facts);
  for (const auto& [factor, name] : {std::pair(2.0, "twice"), std::pair(0.5, "half")}) {
    if (factor < 1 && !also_less) continue;
    variants.add(
        what_if(fmt::format("{} the host memory ({})", name, format_bytes(scaled(factor, budget)))),
        [&, factor = factor](Options& options, RunFacts& facts) {
          scale_host(factor, budget, options, facts);
        });
  }
  if (is_discrete(basis.options) && basis.options.device_memory > 0) {
    variants.add(what_if(fmt::format("twice the device memory ({})",
                                     format_bytes(scaled(2, basis.options.device_memory)))),
                 [](Options& options, RunFacts&) {
                   options.device_memory = scaled(2, options.device_memory);
                 });
  }
  const int64_t drives = drives_of(basis.options, basis.facts.machine).count;
  if (drives > 0) {
    variants.add(what_if(fmt::format("one more drive ({})", drives + 1)),
                 [&](Options&, RunFacts& facts) { add_drive(drives, facts); });
  }
}

void add_what_ifs(const PlanBasis& basis, const std::optional<config::Machine>& other,
                  Variants& variants) {
  add_hardware(basis, true, variants);
  if (basis.options.nvme.empty()) {
    Variant& first = variants.add(what_if("a first drive (--nvme DIR)"), add_first_drive);
    if (const config::Machine& machine = first.facts.machine;
        !has_drive_figures(basis.facts.machine)) {
      first.compared.remark =
          fmt::format("as if it held {} and moved {}/s while it reads and writes",
                      format_drive_bytes(static_cast<double>(machine.nvme_bytes)),
                      format_drive_bytes(machine.nvme_mixed_bytes_per_s));
    }
  }
  variants.add(
      what_if(fmt::format("twice the batch (--accumulate {})", 2 * basis.options.accumulate)),
      [](Options& options, RunFacts& facts) {
        options.accumulate *= 2;
        facts.steps = ceil_div(facts.steps, 2);
      });
  Variant& ranks =
      variants.add(what_if(fmt::format("twice the ranks (--ranks {})", 2 * basis.options.ranks)),
                   [](Options& options, RunFacts& facts) {
                     set_ranks(2 * options.ranks, options, facts);
                     facts.steps = ceil_div(facts.steps, 2);
                   });
  if (const int64_t on_node = ranks.facts.ranks_on_node; on_node > 0) {
    const int64_t nodes = ceil_div(ranks.options.ranks, on_node);
    if (nodes > 1) ranks.compared.remark = fmt::format("on {} machines", nodes);
  }
  if (!other) return;
  Variant& there =
      variants.add(what_if("the machine " + other->name), [&](Options& options, RunFacts& facts) {
        options.device = config::Device::kAuto;
        options.device_memory = options.host_memory = 0;
        plan_elsewhere(*other, options, facts);
      });
  const int64_t there_bytes = host_budget_of(there.options, there.facts);
  there.compared.remark = fmt::format("with {} of host memory", format_bytes(there_bytes));
}

// Without the remedies, which are for the basis.
std::string text_of(const plan::DoesNotFit& refusal, int64_t ranks) {
  std::string text;
  for (const plan::Shortage& shortage : refusal.shortages()) {
    const char* what = shortage.arena == Arena::kDevice ? "device memory"
                       : shortage.arena == Arena::kHost ? "host memory"
                                                        : "NVMe space";
    const bool is_of_rank = ranks > 1 && shortage.arena == Arena::kDevice;
    text += fmt::format("{}{} of {}{}, has {}", text.empty() ? "needs " : "; ",
                        format_bytes_up(shortage.need_bytes), what,
                        is_of_rank ? " for each rank" : "", format_bytes(shortage.has_bytes));
  }
  return text;
}

// Whether both are one plan; a plan that does not fit is none.
bool is_same(const Compared& one, const Compared& planned) {
  return one.refusal.empty() && planned.refusal.empty() &&
         one.report.identity == planned.report.identity;
}

}  // namespace

void plan_variant(const model::ModelSpec& spec, Variant& variant) {
  variant.compared.is_rough = variant.facts.rough;
  try {
    variant.compared.report = report_of(plan_run(spec, variant.options, variant.facts));
  } catch (const plan::DoesNotFit& refusal) {
    variant.compared.refusal = text_of(refusal, variant.options.ranks);
  }
}

std::vector<Compared> compare_plans(const PlanBasis& basis,
                                    const std::optional<config::Machine>& other,
                                    const Planning& planning) {
  Variants collected(basis);
  collected.add(what_if("as planned"), [](Options&, RunFacts&) {});
  add_strategies(basis, collected);
  add_what_ifs(basis, other, collected);
  std::vector<Variant> variants = collected.take();
  std::vector<Compared> compared;
  for (Variant& variant : variants) {
    if (planning) planning(std::ssize(compared) + 1, std::ssize(variants));
    plan_variant(basis.spec, variant);
    compared.push_back(std::move(variant.compared));
    compared.back().is_planned = is_same(compared.back(), compared.front());
  }
  return compared;
}

std::vector<Compared> compare_hardware(const PlanBasis& basis,
                                       const std::function<bool()>& may_plan) {
  Variants collected(basis);
  collected.add(what_if("as planned"), [](Options&, RunFacts&) {});
  add_hardware(basis, false, collected);
  std::vector<Compared> compared;
  for (Variant& variant : collected.take()) {
    if (!may_plan()) break;
    plan_variant(basis.spec, variant);
    compared.push_back(std::move(variant.compared));
  }
  return compared;
}

}  // namespace strata::train

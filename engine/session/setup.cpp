// SPDX-License-Identifier: Apache-2.0
#include "engine/session/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/data/data.h"
#include "engine/exec/devices.h"
#include "engine/exec/rates_of.h"
#include "engine/memory/process_memory.h"
#include "engine/plan/builder.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "engine/train/plan_elsewhere.h"
#include "io/scratch_file.h"
#include "io/volume.h"

namespace strata::session {
namespace {

void verify_or_abort(const plan::Plan& plan, const model::ModelSpec& spec) {
  const plan::VerifyReport report = plan::verify(plan, spec);
  if (report.ok()) return;
  const plan::Violation& violation = report.violations.front();
  throw Error(
      ErrorCode::kDevice,
      fmt::format("internal error: the verifier refuses this plan: {} op {}: {}: {} (please "
                  "report it with the options of this run)",
                  plan::name_of(violation.program), violation.op, violation.kind, violation.text));
}

}  // namespace

std::unique_ptr<model::ModelDirectory> open_model(const config::Options& options) {
  try {
    auto model =
        std::make_unique<model::ModelDirectory>(model::ModelDirectory::open(options.model));
    for (const std::string& note : model->notes()) log(LogLevel::kInfo, "model: " + note);
    return model;
  } catch (const Error& error) {
    // Nothing has run yet, so a damaged file means a directory that cannot be used.
    if (error.code() == ErrorCode::kCorrupt) throw Error(ErrorCode::kConfig, error.what());
    throw;
  }
}

std::unique_ptr<text::Tokenizer> open_tokenizer(const config::Options& options, bool required) {
  if (!required && !text::Tokenizer::is_in(options.model)) return nullptr;
  return std::make_unique<text::Tokenizer>(text::Tokenizer::read(options.model));
}

void require_positions(const config::Options& options, const model::Architecture& architecture) {
  if (options.sequence_length <= architecture.max_position) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("sequence-length: {}: the model has positions up to {} (lower "
                          "--sequence-length)",
                          options.sequence_length, architecture.max_position));
}

namespace {

config::Machine read_profile(const config::Options& options) {
  config::Machine machine = config::read_machine(options.machine);
  if (!options.nvme.empty() && machine.nvme_mixed_bytes_per_s <= 0) {
    throw Error(ErrorCode::kConfig, "machine: " + options.machine +
                                        ": has no figures of drives, but --nvme is given (add "
                                        "nvme_read, nvme_write and nvme_mixed_bytes_per_s)");
  }
  return machine;
}

}  // namespace

std::unique_ptr<model::ModelDirectory> collect_model(const config::Options& options,
                                                     Failures& failures) {
  std::unique_ptr<model::ModelDirectory> model;
  failures.collect([&] { model = open_model(options); });
  return model;
}

void collect_files(const config::Options& options, Failures& failures, bool evaluates) {
  failures.collect([&] { data::Dataset::check(options.data, evaluates); });
  failures.collect([&] { data::Dataset::check(options.eval_data, true); });
  if (options.resume_checkpoint.empty()) return;
  failures.collect([&] { (void)checkpoint::read_manifest(options.resume_checkpoint); });
}

std::optional<config::Machine> collect_profile(const config::Options& options, Failures& failures) {
  std::optional<config::Machine> profile;
  if (!options.machine.empty()) failures.collect([&] { profile = read_profile(options); });
  return profile;
}

void collect_drives(const config::Options& options, Failures& failures) {
  failures.collect([&] { (void)io::free_bytes_of(options.nvme); });
}

void check_scratch(const config::Options& options) {
  if (options.nvme.empty()) return;
  (void)io::free_bytes_of(options.nvme);
  io::VolumeOptions volume;
  volume.directories = options.nvme;
  volume.bytes = volume.stripe_bytes;
  volume.owner = "strata train (checking)";
  const io::Volume opened(volume);
}

void collect_device(const config::Options& options, Failures& failures) {
  if (!config::is_gpu(options.device)) return;
  failures.collect([&] { (void)exec::require_gpu(options.plugin_path, options.device_index); });
}

train::RunFacts read_facts(const config::Options& options, train::Job* job) {
  train::RunFacts facts;
  std::vector<train::NodeFacts> nodes = {read_node(options, job)};
  if (job != nullptr) {
    nodes = job->meet(nodes.front(), options.out);
    facts.ranks_on_node = job->ranks_on_node();
    facts.processes = true;
    facts.only_rank = job->rank();
  } else if (options.ranks > 1 && options.collectives == config::Collectives::kMpi) {
    throw Error(ErrorCode::kUsage,
                "collectives: mpi: the ranks of one process are threads (start strata train by "
                "mpirun, or leave it out)");
  }
  const std::string machines = train::take_least(nodes, facts);
  const int64_t free = facts.device_free_bytes;
  if (free > 0 && options.device_memory > free) {
    log(LogLevel::kWarning, fmt::format("device-memory: {} is more than the {} that the GPU has "
                                        "free (lower it)",
                                        format_bytes(options.device_memory), format_bytes(free)));
  }
  if (!machines.empty()) log(LogLevel::kInfo, machines);
  if (options.host_memory > facts.limits.usable_bytes()) {
    log(LogLevel::kWarning,
        fmt::format(
            "host-memory: {} is more than the available {} ({}): planning with what is available",
            format_bytes(options.host_memory), format_bytes(facts.limits.usable_bytes()),
            facts.limits.usable_reason()));
  }
  const int64_t on_node = facts.ranks_on_node > 0 ? facts.ranks_on_node : options.ranks;
  if (on_node > facts.limits.cores) {
    log(LogLevel::kWarning,
        fmt::format(
            "ranks: {} are more than the {} of this process: they take turns, so fewer ranks with "
            "more --accumulate are faster",
            on_node, counted(facts.limits.cores, "core")));
  }
  return facts;
}

namespace {

// "h200-8nvme: 1 device, 8 drives that read 48 and write 26 GB/s together".
std::string describe_machines(const config::Options& options, const train::RunFacts& facts) {
  const config::Machine& machine = facts.machine;
  const int64_t nodes = ceil_div(options.ranks, facts.ranks_on_node);
  const int64_t devices = std::max<int64_t>(1, machine.device_count);
  const std::string used =
      machine.device == config::DeviceKind::kCpu ? counted(facts.limits.cores, "core")
      : facts.ranks_on_node < devices
          ? fmt::format("{} of its {}", facts.ranks_on_node, counted(devices, "device"))
          : counted(devices, "device");
  std::string drives = "no drives";
  if (const int64_t count = train::drives_of(options, machine).count; count > 0) {
    drives = fmt::format("{} that {} {:.3g} and {} {:.3g} GB/s{}", counted(count, "drive"),
                         count == 1 ? "reads" : "read", machine.nvme_read_bytes_per_s / 1e9,
                         count == 1 ? "writes" : "write", machine.nvme_write_bytes_per_s / 1e9,
                         count == 1 ? "" : " together");
  }
  return fmt::format("{}{}: {}, {}", nodes == 1 ? "" : counted(nodes, "machine") + ", each ",
                     machine.name, used, drives);
}

}  // namespace

train::RunFacts read_facts_elsewhere(const config::Machine& machine, config::Options& options) {
  train::RunFacts facts;
  facts.limits = config::read_limits();
  const auto named = static_cast<int64_t>(options.nvme.size());
  train::plan_elsewhere(machine, options, facts);
  log(LogLevel::kInfo, "planning for " + describe_machines(options, facts));
  if (facts.ranks_on_node < options.ranks && machine.network_bytes_per_s <= 0) {
    log(LogLevel::kWarning,
        fmt::format(
            "network: {} does not say network_bytes_per_s: planning with {:.3g} GB/s between "
            "machines (add it to the profile)",
            machine.name, exec::kAssumedNetworkBytesPerS / 1e9));
  }
  const auto warn_beyond = [&](const char* name, int64_t asked, int64_t has) {
    if (has <= 0 || asked <= has) return;
    log(LogLevel::kWarning,
        fmt::format("{}: {} is more than {} has, {}; the plan is for a machine with so much (lower "
                    "it, or raise the figure in the profile)",
                    name, format_bytes(asked), machine.name, format_bytes(has)));
  };
  warn_beyond("host-memory", options.host_memory, machine.host_bytes);
  if (config::row_of(machine.device).is_gpu && !config::is_gpu(options.device)) {
    log(LogLevel::kWarning,
        fmt::format("device: {} has a GPU's rates, and so have these times (leave out --device)",
                    machine.name));
  }
  warn_beyond("device-memory", options.device_memory, machine.device_bytes);
  if (const int64_t count = train::drives_of(options, machine).count; named > 0 && named != count) {
    log(LogLevel::kInfo,
        fmt::format("nvme: names {}, but {} has {}: planning with {} (--machine needs no --nvme)",
                    counted(named, "directory"), machine.name, counted(count, "drive"),
                    count == 1 ? "that" : "all"));
  }
  return facts;
}

exec::ProbeOptions probe_options(const config::Options& options, const train::RunFacts& facts) {
  exec::ProbeOptions probe;
  probe.backend = &kernels::cpu_backend();
  probe.threads = static_cast<int>(options.threads > 0 ? options.threads : facts.limits.cores);
  probe.drive.directories = options.nvme;
  probe.drive.deadline_s =
      std::min(probe.drive.deadline_s, static_cast<double>(options.io_deadline));
  probe.device = config::kind_of(options.device);
  if (config::row_of(probe.device).is_gpu) {
    const int index = options.first_device();
    const auto gpus = exec::require_gpu(options.plugin_path, index);
    probe.gpu = exec::text_of(gpus[static_cast<size_t>(index)]);
    probe.gpu_bytes = gpus[static_cast<size_t>(index)].memory_bytes;
    probe.open_gpu = [kind = probe.device, index, path = options.plugin_path](DType interior) {
      return exec::open_device(
          {.kind = kind, .index = index, .interior = interior, .plugin_path = path});
    };
  }
  // Large processors have large caches, into which what is measured must not fit.
  probe.memory_bytes =
      std::clamp(std::min(64 * kMiB * probe.threads, facts.limits.usable_bytes() / 8),
                 probe.memory_bytes, kGiB);
  // The measurement stays within the memory budget of the run, with code that it is first to use.
  if (options.host_memory > 0) {
    constexpr int64_t kCodeBytes = 14 * kMiB;
    const int64_t processes = facts.processes ? facts.ranks_on_node : 1;  // the others wait
    const int64_t room = options.host_memory -
                         processes * (memory::read_process_memory().resident_bytes + kCodeBytes);
    probe.memory_bytes = std::clamp(room, exec::ProbeOptions::kLeastBytes, probe.memory_bytes);
  }
  return probe;
}

void measure_machine(const config::Options& options, const std::optional<config::Machine>& profile,
                     const std::string& cache_directory, train::RunFacts& facts) {
  if (profile) {
    facts.machine = *profile;
    train::set_room(options, facts);
    return;
  }
  exec::ProbeOptions probe = probe_options(options, facts);
  probe.network = facts.network;
  bool measured = false;
  try {
    facts.machine = cache_directory.empty()
                        ? exec::probe_machine(probe)
                        : exec::machine_for(cache_directory, STRATA_VERSION, probe, &measured);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    log(LogLevel::kWarning, std::string("machine: not measured, so the plan is made with nominal "
                                        "rates: ") +
                                error.what());
    facts.machine = nominal_machine(facts.limits.cores);
    exec::set_network(facts.network, facts.machine);
  }
  train::set_room(options, facts);
  if (measured)
    log(LogLevel::kInfo, "machine: measured in a few seconds and kept for the next run");
}

config::Machine nominal_machine(int64_t cores) {
  config::Machine machine;
  machine.cores = cores;
  machine.matmul_flops_per_s = 1e11;
  machine.memory_bytes_per_s = 2e10;
  machine.optimizer_bytes_per_s = 2e10;
  machine.nvme_read_bytes_per_s = machine.nvme_write_bytes_per_s = machine.nvme_mixed_bytes_per_s =
      1e9;
  machine.upload_bytes_per_s = machine.download_bytes_per_s = 1e10;
  return machine;
}

namespace {

// Plans with shares by speed, which leave space on slow drives unused; when space is too little,
// plans with equal shares.
train::RunPlan plan_with_room(const model::ModelSpec& spec, const config::Options& options,
                              const train::RunFacts& facts) {
  try {
    return train::plan_run(spec, options, facts);
  } catch (const Error& error) {
    const bool may_be_even = !facts.machine.nvme_weights.empty() && !facts.elsewhere;
    if (error.code() != ErrorCode::kDoesNotFit || !may_be_even) throw;
  }
  train::RunFacts even = facts;
  even.machine.nvme_weights.clear();
  train::set_room(options, even);
  return train::plan_run(spec, options, even);
}

}  // namespace

void require_verified(const train::RunPlan& run) {
  for (const plan::Plan& rank : run.ranks) verify_or_abort(rank, run.spec_of(rank.mesh.rank));
  if (run.ranks.size() > 1) {
    const plan::VerifyReport report = plan::verify_ranks(
        run.ranks, [&](int rank) -> const model::ModelSpec& { return run.spec_of(rank); });
    if (!report.ok()) {
      throw Error(ErrorCode::kConfig, "internal error: the ranks' plans differ: " +
                                          report.violations.front().text + " (please report it)");
    }
  }
}

train::RunPlan make_run_plan(const model::ModelSpec& spec, const config::Options& options,
                             const train::RunFacts& facts) {
  train::RunPlan run = plan_with_room(spec, options, facts);
  require_verified(run);
  return run;
}

plan::Rates unit_rates(const config::Options& options) {
  config::Machine machine = nominal_machine(options.threads);
  machine.device = config::kind_of(options.device);
  if (config::is_gpu(options.device)) machine.device_memory_bytes_per_s = 1e12;
  return exec::rates_of(machine, {.recipe = options.recipe,
                                  .threads = static_cast<int>(options.threads),
                                  .discrete = config::row_of(machine.device).discrete});
}

plan::Mesh mesh_of_units(const config::Options& options, int rank, int on_node) {
  return {.world = static_cast<int>(options.ranks),
          .rank = rank,
          .zero_stage = static_cast<int>(options.zero_stage),
          .replicate = static_cast<int>(options.copies()),
          .node_ranks = on_node,
          .reduce_dtype = options.reduce_dtype};
}

train::RunPlan plan_units(const model::ModelSpec& spec, const config::Options& options,
                          const UnitRank& rank) {
  train::RunPlan run;
  run.spec = std::make_unique<model::ModelSpec>(spec);
  run.threads = options.threads;
  run.drives = train::drives_of(options, {});
  run.ranks_on_node = rank.on_node;
  run.host_budget = options.host_memory > 0 ? options.host_memory : plan::kNoLimit;
  run.input.spec = run.spec.get();
  run.input.recipe = options.recipe;
  run.input.micro_batches = static_cast<int>(options.accumulate);
  run.input.device = exec::describe(config::kind_of(options.device), options.recipe,
                                    static_cast<int>(options.threads));
  run.input.host_budget = run.host_budget;
  if (run.input.device.discrete) run.input.device_budget = options.device_memory;
  run.input.mesh = mesh_of_units(options, 0, static_cast<int>(rank.on_node));
  run.input.nvme_budget =
      static_cast<int64_t>(train::kShareOfFreeSpace *
                           static_cast<double>(io::free_bytes_of(options.nvme))) /
      rank.on_node;
  run.rates = unit_rates(options);
  plan::PlannedRun planned =
      plan::make_plan(run.input, {.predict = [&](const plan::Plan& plan) {
                        return plan::simulate(plan, plan::ProgramName::kStep, run.rates).step_s;
                      }});
  run.placement_name = planned.name;
  run.candidates = planned.candidates;
  run.predicted_step_s = planned.cost.predicted_s;
  run.input.mesh.rank = rank.rank;
  run.ranks.push_back(rank.rank == 0 ? std::move(planned.plan)
                                     : plan::build_plan(run.input, planned.placement));
  require_verified(run);
  return run;
}

}  // namespace strata::session

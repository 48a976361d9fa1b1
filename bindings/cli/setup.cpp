// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/plan/verifier.h"

namespace strata::cli {
namespace {

void verify_or_abort(const plan::Plan& plan, const model::ModelSpec& spec) {
  const plan::VerifyReport report = plan::verify(plan, spec);
  if (report.ok()) return;
  const plan::Violation& violation = report.violations.front();
  throw Error(
      ErrorCode::kConfig,
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
    // Nothing has run: damaged input is a directory that cannot be used.
    if (error.code() == ErrorCode::kCorrupt) throw Error(ErrorCode::kConfig, error.what());
    throw;
  }
}

std::unique_ptr<train::Tokenizer> open_tokenizer(const config::Options& options, bool required) {
  if (!required && !std::filesystem::exists(options.model + "/tokenizer.json")) return nullptr;
  return std::make_unique<train::Tokenizer>(train::Tokenizer::read(options.model));
}

std::unique_ptr<train::Dataset> open_data(const config::Options& options,
                                          const model::ModelDirectory& model,
                                          const train::Tokenizer* tokenizer, bool holds_out) {
  const model::Architecture& architecture = model.architecture();
  if (tokenizer && tokenizer->vocabulary_size() > architecture.vocabulary) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("tokenizer: {}: has {} tokens, the model's embedding only {} (is it another "
                    "model's tokenizer?)",
                    options.model, tokenizer->vocabulary_size(), architecture.vocabulary));
  }
  if (options.sequence_length > architecture.max_position) {
    throw Error(ErrorCode::kConfig,
                fmt::format("sequence-length: {}: the model has positions up to {} (lower "
                            "--sequence-length)",
                            options.sequence_length, architecture.max_position));
  }
  if (holds_out && options.eval_fraction == 0) {
    throw Error(ErrorCode::kConfig,
                "eval-fraction: 0: nothing is held out to evaluate on (give a part such as 0.05)");
  }
  train::DataOptions data;
  data.length = options.sequence_length;
  data.vocabulary = architecture.vocabulary;
  data.held_out_fraction = holds_out ? options.eval_fraction : 0.0;
  return std::make_unique<train::Dataset>(train::Dataset::open(options.data, tokenizer, data));
}

train::RunFacts read_facts(const config::Options& options) {
  train::RunFacts facts;
  facts.limits = config::read_limits();
  facts.nvme_free_bytes = train::free_bytes_of(options.nvme);
  return facts;
}

std::string cache_directory() {
  std::string path;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    path = std::string(cache) + "/strata";
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    path = std::string(home) + "/.cache/strata";
  }
  std::error_code ignored;  // without a cache the next run measures again
  if (!path.empty()) std::filesystem::create_directories(path, ignored);
  return path;
}

exec::ProbeOptions probe_options(const config::Options& options, const train::RunFacts& facts) {
  exec::ProbeOptions probe;
  probe.backend = &kernels::cpu_backend();
  probe.threads = static_cast<int>(options.threads > 0 ? options.threads : facts.limits.cores);
  probe.drive.directories = options.nvme;
  if (options.device == config::Device::kEmulated) probe.device = config::DeviceKind::kEmulated;
  // What is measured with stays within the budget of the run.
  if (options.host_memory > 0) {
    probe.memory_bytes = std::clamp(options.host_memory / 8, 8 * kMiB, probe.memory_bytes);
  }
  return probe;
}

void measure_machine(const config::Options& options, train::RunFacts& facts) {
  if (!options.machine.empty()) {
    facts.machine = config::read_machine(options.machine);
    if (!options.nvme.empty() && facts.machine.nvme_mixed_bytes_per_s <= 0) {
      throw Error(ErrorCode::kConfig, "machine: " + options.machine +
                                          ": says nothing of drives, and --nvme is given (add "
                                          "nvme_read, nvme_write and nvme_mixed_bytes_per_s)");
    }
    return;
  }
  const exec::ProbeOptions probe = probe_options(options, facts);
  bool measured = false;
  try {
    facts.machine = exec::machine_for(cache_directory(), STRATA_VERSION, probe, &measured);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    log(LogLevel::kWarning, std::string("machine: not measured, so the plan is made with nominal "
                                        "rates: ") +
                                error.what());
    facts.machine = nominal_machine(facts.limits.cores);
  }
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

train::RunPlan make_run_plan(const model::ModelSpec& spec, const config::Options& options,
                             const train::RunFacts& facts) {
  train::RunPlan run = train::plan_run(spec, options, facts);
  for (const plan::Plan& rank : run.ranks) verify_or_abort(rank, *run.spec);
  if (run.ranks.size() > 1) {
    const plan::VerifyReport report = plan::verify_ranks(run.ranks, *run.spec);
    if (!report.ok()) {
      throw Error(ErrorCode::kConfig, "internal error: the ranks' plans differ: " +
                                          report.violations.front().text + " (please report it)");
    }
  }
  return run;
}

}  // namespace strata::cli

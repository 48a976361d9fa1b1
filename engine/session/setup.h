// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/base/failures.h"
#include "engine/config/options.h"
#include "engine/exec/machine_probe.h"
#include "engine/model_files/model_directory.h"
#include "engine/text/tokenizer.h"
#include "engine/train/job.h"
#include "engine/train/run_plan.h"

// The steps before every run: open, check, measure, plan.
namespace strata::session {

std::unique_ptr<model::ModelDirectory> open_model(const config::Options& options);
std::unique_ptr<text::Tokenizer> open_tokenizer(const config::Options& options, bool required);
// Throws Error (kConfig) for samples that are longer than the model has positions.
void require_positions(const config::Options& options, const model::Architecture& architecture);

// The collect_ functions check files and directories that options name, each by itself, and add
// what is wrong to `failures`, so that all mistakes are reported together.

// Opens the model; null when it cannot be opened.
std::unique_ptr<model::ModelDirectory> collect_model(const config::Options& options,
                                                     Failures& failures);
// Checks --data and a named checkpoint of --resume. `evaluates`: see data::data_items().
void collect_files(const config::Options& options, Failures& failures, bool evaluates = false);
// Reads the profile of --machine; nullopt without that option. The file is read only once, because
// it may be a pipe.
std::optional<config::Machine> collect_profile(const config::Options& options, Failures& failures);
// Checks that the directories of --nvme exist.
void collect_drives(const config::Options& options, Failures& failures);
// Opens a scratch volume of the smallest size, so that wrong directories are reported before
// anything is created.
void check_scratch(const config::Options& options);
// Checks that the GPU of --device works as far as its driver goes.
void collect_device(const config::Options& options, Failures& failures);

// Reads what a plan needs to know of this machine, without measurements.
train::NodeFacts read_node(const config::Options& options, const train::Job* job);

// The facts of a run here, and with a `job` on all its machines, for which rank 0 waits. Warns when
// --host-memory is more than the available memory (plans then use the latter), and when ranks share
// cores.
train::RunFacts read_facts(const config::Options& options, train::Job* job = nullptr);

// The facts of another machine, where nothing runs; also sets options that depend on the machine
// (train::plan_elsewhere).
train::RunFacts read_facts_elsewhere(const config::Machine& machine, config::Options& options);

// How this machine is measured for a run with these options.
exec::ProbeOptions probe_options(const config::Options& options, const train::RunFacts& facts);

// Sets the machine profile: the given one, or the one in `cache_directory`, or one that is measured
// now in a few seconds and kept there. With an empty path none is kept.
void measure_machine(const config::Options& options, const std::optional<config::Machine>& profile,
                     const std::string& cache_directory, train::RunFacts& facts);

// Rates of an average machine, used when a measurement is not worth its time or has no memory. They
// affect the choice between plans, never whether a plan fits.
config::Machine nominal_machine(int64_t cores);

// Throws when the verifier refuses the plan of any rank, which is a bug of ours.
void require_verified(const train::RunPlan& run);

// Makes the plan and verifies every rank's part.
train::RunPlan make_run_plan(const model::ModelSpec& spec, const config::Options& options,
                             const train::RunFacts& facts);

// The rates that plans of declared units are made with. A caller that takes some seconds computes
// that many times `matmul_flops_per_s` operations.
plan::Rates unit_rates(const config::Options& options);

// One of the ranks that share the state of declared units, and how many of them a machine has.
struct UnitRank {
  int rank = 0;
  int64_t on_node = 1;
};

plan::Mesh mesh_of_units(const config::Options& options, int rank, int on_node);

// Plans a rank of units that a caller declares and computes by itself: --host-memory is the size of
// its arenas, --accumulate the number of micro-batches in a step. Ranks of a machine share the
// space of its drives.
train::RunPlan plan_units(const model::ModelSpec& spec, const config::Options& options,
                          const UnitRank& rank);

}  // namespace strata::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/base/failures.h"
#include "engine/config/options.h"
#include "engine/data/data.h"
#include "engine/exec/machine_probe.h"
#include "engine/model_files/model_directory.h"
#include "engine/text/tokenizer.h"
#include "engine/train/run_plan.h"

// What all runs do before they start: open, check, measure, plan.
namespace strata::session {

std::unique_ptr<model::ModelDirectory> open_model(const config::Options& options);
std::unique_ptr<text::Tokenizer> open_tokenizer(const config::Options& options, bool required);
// Throws Error (kConfig) for samples that are longer than the model has positions.
void require_positions(const config::Options& options, const model::Architecture& architecture);

// What is wrong with files and directories that options name, as far as that can be said of each by
// itself, is collected before the first of them ends the command.

// The model, opened; null where it cannot be.
std::unique_ptr<model::ModelDirectory> collect_model(const config::Options& options,
                                                     Failures& failures);
// --data, and a named checkpoint of --resume.
void collect_files(const config::Options& options, Failures& failures);
// The profile of --machine; nothing without one. The file is read once: it may be a pipe.
std::optional<config::Machine> collect_profile(const config::Options& options, Failures& failures);
// Whether the directories of --nvme are there.
void collect_drives(const config::Options& options, Failures& failures);

// How the data of --data is used.
struct DataUse {
  bool holds_out = false;  // the part of --eval-fraction
  // Every token, also behind the last whole sample. The part that train holds out is without it.
  bool keeps_tail = false;
  int64_t room_bytes = 0;  // see train::room_for_reading; 0: no limit
};
std::unique_ptr<data::Dataset> open_data(const config::Options& options,
                                         const model::Architecture& architecture,
                                         const text::Tokenizer* tokenizer, const DataUse& use);

// What the tokens of --data take in memory, for a refusal to name a budget that is enough: exactly,
// or of large text the most that they can take.
int64_t data_bytes_for_refusal(const config::Options& options,
                               const model::Architecture& architecture);

// Limits of this system and free space; no measurement. Warns where it has less memory than
// --host-memory, and plans then have what there is, and where ranks share cores.
train::RunFacts read_facts(const config::Options& options);

// The same of a machine where nothing runs; what `options` leave to the machine is set
// (train::plan_elsewhere).
train::RunFacts read_facts_elsewhere(const config::Machine& machine, config::Options& options);

// How this machine is measured for such a run.
exec::ProbeOptions probe_options(const config::Options& options, const train::RunFacts& facts);

// The machine profile: the one given, the one kept in `cache_directory`, or measured now in a few
// seconds and kept there; an empty path keeps none.
void measure_machine(const config::Options& options, const std::optional<config::Machine>& profile,
                     const std::string& cache_directory, train::RunFacts& facts);

// Rates of a middling machine, for where a measurement is not worth its time or has no room: they
// decide between plans, never whether one fits.
config::Machine nominal_machine(int64_t cores);

// Throws for a plan of any rank that the verifier refuses: a bug of ours.
void require_verified(const train::RunPlan& run);

// Plans, and verifies every rank's plan.
train::RunPlan make_run_plan(const model::ModelSpec& spec, const config::Options& options,
                             const train::RunFacts& facts);

// The same for units that a caller declares and computes by itself: --host-memory is what the
// arenas take, --accumulate how many micro-batches a step has.
train::RunPlan plan_units(const model::ModelSpec& spec, const config::Options& options);

}  // namespace strata::session

// SPDX-License-Identifier: Apache-2.0
#include "engine/session/model_use.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/checkpoint/model_source.h"
#include "engine/config/mesh_option.h"
#include "engine/data/chat_records.h"
#include "engine/data/data_paths.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_path.h"
#include "engine/model_files/model_writer.h"
#include "engine/session/inference_setup.h"
#include "engine/session/model_rate.h"
#include "engine/session/resume.h"
#include "engine/session/run_data.h"
#include "engine/train/mesh_choice.h"
#include "engine/train/resume_check.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"

namespace strata::session {
namespace {

// The spec of the model, from its config.json; empty when that cannot be read.
model::ModelSpec collect_spec(const config::Options& options, Failures& failures) {
  model::ModelSpec spec;
  const bool is_there = failures.collect([&] {
    model::require_model_directory(options.model);
    const std::string path = options.model + "/config.json";
    spec = model::build_spec(model::read_architecture_file(path));
  });
  if (!is_there) return spec;
  failures.collect([&] { require_positions(options, spec.architecture); });
  failures.collect([&] {
    model::ModelSpec grouped = spec;
    train::apply_groups(grouped, options);
  });
  return spec;
}

}  // namespace

config::Options with_named_checkpoint(const config::Options& options) {
  if (options.resume && options.resume_checkpoint.empty()) {
    throw Error(
        ErrorCode::kUsage,
        "resume: no checkpoint given (name a run, RUN/best or RUN/checkpoints/step-000123)");
  }
  return with_checkpoint(options);
}

train::RunFacts inference_facts(const config::Options& options) {
  train::RunFacts facts = read_facts(options);
  facts.inference = true;
  return facts;
}

train::RunPlan inference_plan(const config::Options& options, const model::ModelDirectory& model,
                              train::RunFacts facts, int64_t data_bytes) {
  facts.data_bytes = data_bytes;
  facts.machine = nominal_machine(facts.limits.cores);
  return make_run_plan(train::frozen_spec(model.spec()), options, facts);
}

PlanRequest::PlanRequest(const config::Options& given, const std::string& cache_directory)
    : cache_directory_(cache_directory) {
  basis_.options = given;
  config::Options& options = basis_.options;
  Failures failures;
  basis_.spec = collect_spec(options, failures);
  const model::Architecture& architecture = basis_.spec.architecture;
  failures.collect([&] { train::require_built(options); });
  if (options.machine.empty()) collect_device(options, failures);
  collect_files(options, failures);
  profile_ = collect_profile(options, failures);
  if (!options.compare_machine.empty()) {
    failures.collect([&] { other_ = config::read_machine(options.compare_machine); });
  }
  if (options.machine.empty()) collect_drives(options, failures);
  failures.throw_if_any("cannot start");
  options.samples = samples_of(options);
  train::RunFacts& facts = basis_.facts;
  facts = profile_ ? read_facts_elsewhere(*profile_, options) : read_facts(options);
  facts.steps = options.steps;
  facts.data_bytes = data::Dataset::least_bytes(architecture.vocabulary);
  if (options.data.empty()) return;
  const auto tokenizer = open_tokenizer(options, false);
  const auto limits = profile_ ? train::ReadingLimits{} : train::limits_for_reading(options, facts);
  const auto data = open_data(options, architecture, tokenizer.get(),
                              {.limits = limits, .cache_directory = cache_directory});
  facts.data_bytes = data->bytes();
  facts.steps = train::planned_steps(options, *data);
}

void PlanRequest::measure() {
  if (profile_ || is_measured_) return;
  measure_machine(basis_.options, profile_, cache_directory_, basis_.facts);
  measure_model(basis_.spec, basis_.options, basis_.facts);
  is_measured_ = true;
}

train::RunPlan PlanRequest::plan() {
  train::require_fit(basis_.spec, basis_.options, basis_.facts);
  measure();
  basis_.facts.only_rank = 0;  // the others' plans differ in their part of each segment alone
  return make_run_plan(basis_.spec, basis_.options, basis_.facts);
}

std::vector<train::Compared> PlanRequest::choose_mesh(const train::Planning& planning) {
  if (!config::chooses_mesh(basis_.options)) return {};
  measure();
  train::MeshChoice choice = train::choose_mesh(basis_, planning);
  basis_.options = std::move(choice.options);
  return std::move(choice.compared);
}

std::vector<train::Compared> PlanRequest::compare(const train::Planning& planning) {
  measure();
  return train::compare_plans(basis_, other_, planning);
}

namespace {

// What `eval` reads: of a directory with files for validation, these.
std::vector<std::string> measured_data(const std::vector<std::string>& given) {
  std::vector<std::string> measured;
  for (const data::DataItem& item : data::data_items(given, true)) {
    if (!item.held_out.empty()) {
      log(LogLevel::kInfo, fmt::format("eval: {}: its files for validation are measured: {} (to "
                                       "measure others, give their own paths)",
                                       item.path, fmt::join(item.held_out, ", ")));
    }
    const auto& files = item.held_out.empty() ? std::vector{item.path} : item.held_out;
    for (const std::string& file : files) {
      measured.push_back(item.weight > 0 ? fmt::format("{}:{}", file, item.weight) : file);
    }
  }
  return measured;
}

}  // namespace

train::Inference::Loss evaluate_model(const config::Options& given,
                                      const std::string& cache_directory,
                                      const train::WorkProgress& progress) {
  config::Options options = with_named_checkpoint(given);
  options.ranks = options.tensor_ranks = options.context_ranks = options.pipeline_ranks = 1;
  const bool part = options.is_given("eval-fraction");
  Failures failures;
  const auto model = collect_model(options, failures);
  if (model) failures.collect([&] { require_positions(options, model->architecture()); });
  failures.collect([&] { train::require_built(options); });
  collect_device(options, failures);
  collect_files(options, failures, !part);
  collect_drives(options, failures);
  failures.throw_if_any("cannot start");
  if (!part) options.data = measured_data(options.data);
  options.samples = samples_of(options);
  auto tokenizer = open_tokenizer(options, false);
  train::RunFacts facts = inference_facts(options);
  facts.data_bytes = data::Dataset::least_bytes(model->architecture().vocabulary);
  train::require_fit(train::frozen_spec(model->spec()), options, facts);  // before data is read
  const auto data = open_data(options, model->architecture(), tokenizer.get(),
                              {.holds_out = part,
                               .keeps_tail = !part,
                               .limits = train::limits_for_reading(options, facts),
                               .cache_directory = cache_directory});
  if (data->cut_count() > 0) {
    log(LogLevel::kWarning,
        fmt::format(
            "eval: {} longer than {} tokens, and what is behind them is not measured (raise "
            "--sequence-length)",
            data->cut_count() == 1 ? "1 record is"
                                   : fmt::format("{} records are", data->cut_count()),
            options.sequence_length));
  }
  if (data->is_mixture()) {
    log(LogLevel::kWarning,
        "eval: the weights of --data have no effect: each token counts once (leave them out)");
  }
  tokenizer.reset();  // frees memory for the passes
  malloc_trim(0);
  const train::RunPlan plan = inference_plan(options, *model, facts, data->bytes());
  train::Inference inference(plan, options, *model, options.resume_checkpoint, progress);
  const train::Inference::Loss loss =
      inference.evaluate(part ? data->held_out() : data->train(), progress);
  if (!std::isfinite(loss.mean)) {
    throw Error(ErrorCode::kNumeric, fmt::format("eval: {}: loss {}: not finite (look at the "
                                                 "weights and the data)",
                                                 options.model, loss.mean));
  }
  return loss;
}

Exported export_model(const config::Options& given) {
  const config::Options options = with_named_checkpoint(given);
  if (options.resume_checkpoint.empty()) {
    throw Error(ErrorCode::kUsage,
                "export: no checkpoint given (add --resume with a run, RUN/best or "
                "RUN/checkpoints/step-000123)");
  }
  Failures failures;
  failures.collect([&] { model::require_may_replace(options.out, options.force); });
  failures.collect([&] {
    std::error_code ignored;  // what is missing is reported elsewhere
    if (!std::filesystem::equivalent(options.out, options.model, ignored)) return;
    throw Error(ErrorCode::kConfig,
                "out: " + options.out +
                    ": is the model that the export reads its tokenizer and frozen weights from "
                    "(choose another directory)");
  });
  const auto model = collect_model(options, failures);
  collect_files(options, failures);
  std::string chat_template;
  failures.collect(
      [&] { chat_template = data::template_to_export(options.chat_template, options.model); });
  failures.throw_if_any("cannot start");
  const checkpoint::CheckpointManifest manifest =
      checkpoint::read_manifest(options.resume_checkpoint);
  const model::ModelSpec spec =
      train::spec_of_checkpoint(manifest, *model, options.resume_checkpoint);
  checkpoint::ModelSource frozen(*model, spec);
  checkpoint::CheckpointReader reader(options.resume_checkpoint, spec, manifest.recipe, frozen);
  auto notes = checkpoint::export_notes(*model, manifest.recipe, options.export_dtype);
  for (const std::string& note : notes) log(LogLevel::kInfo, "export: " + note);
  checkpoint::export_checkpoint(reader, *model, spec,
                                {.path = options.out,
                                 .dtype = checkpoint::dtype_of(options.export_dtype),
                                 .chat_template = chat_template});
  return {.step = manifest.step, .notes = std::move(notes)};
}

}  // namespace strata::session

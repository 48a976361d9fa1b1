// SPDX-License-Identifier: Apache-2.0
#include "engine/session/model_use.h"

#include <fmt/format.h>
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
#include "engine/model/architecture.h"
#include "engine/model_files/model_path.h"
#include "engine/session/resume.h"
#include "engine/train/resume_check.h"
#include "engine/train/run_directory.h"
#include "engine/train/sampling.h"
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

// The options with a checkpoint where --resume is given. These commands have no run directory of
// their own.
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

// The token from which an empty prompt continues: the start of a text, or the end of the text
// before.
int32_t first_id(const text::Tokenizer& tokenizer, const config::Options& options) {
  if (tokenizer.bos_id()) return *tokenizer.bos_id();
  if (tokenizer.eos_id()) return *tokenizer.eos_id();
  throw Error(ErrorCode::kConfig, "prompt: empty, and the tokenizer in " + options.model +
                                      " has no token for the start of a text (give --prompt TEXT)");
}

// Sets the longest text: the prompt and all new tokens, at most the model's positions. Warns when
// these are not enough.
void set_longest_text(int64_t prompt_tokens, const model::Architecture& architecture,
                      config::Options& options) {
  const bool given = options.is_given("sequence-length");
  const int64_t wanted = std::max<int64_t>(1, prompt_tokens + options.max_new_tokens - 1);
  if (!given) options.sequence_length = wanted;
  options.sequence_length = std::min(options.sequence_length, architecture.max_position);
  if (wanted <= options.sequence_length) return;
  log(LogLevel::kWarning,
      fmt::format("generate: a prompt of {} tokens and {} new ones are more than {} {}: when the "
                  "text is longer, only its last {} tokens are used (shorten the prompt, or lower "
                  "--max-new-tokens)",
                  prompt_tokens, options.max_new_tokens,
                  given ? "--sequence-length" : "the model's positions,", options.sequence_length,
                  options.sequence_length));
}

}  // namespace

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
  failures.throw_if_any("cannot start strata plan");
  train::RunFacts& facts = basis_.facts;
  facts = profile_ ? read_facts_elsewhere(*profile_, options) : read_facts(options);
  facts.steps = options.steps;
  facts.data_bytes = data::Dataset::least_bytes(architecture.vocabulary);
  if (options.data.empty()) return;
  const auto tokenizer = open_tokenizer(options, false);
  const int64_t room_bytes = profile_ ? 0 : train::room_for_reading(options, facts);
  const auto data = open_data(options, architecture, tokenizer.get(), {.room_bytes = room_bytes});
  facts.data_bytes = data->bytes();
  facts.steps = train::planned_steps(options, *data);
}

void PlanRequest::measure() {
  if (profile_ || is_measured_) return;
  measure_machine(basis_.options, profile_, cache_directory_, basis_.facts);
  is_measured_ = true;
}

train::RunPlan PlanRequest::plan() {
  train::require_fit(basis_.spec, basis_.options, basis_.facts);
  measure();
  basis_.facts.only_rank = 0;  // the others' plans differ in their part of each segment alone
  return make_run_plan(basis_.spec, basis_.options, basis_.facts);
}

std::vector<train::Compared> PlanRequest::compare(
    const std::function<void(int64_t, int64_t)>& planning) {
  measure();
  return train::compare_plans(basis_, other_, planning);
}

train::Inference::Loss evaluate_model(const config::Options& given,
                                      const train::WorkProgress& progress) {
  config::Options options = with_named_checkpoint(given);
  options.ranks = 1;
  Failures failures;
  const auto model = collect_model(options, failures);
  if (model) failures.collect([&] { require_positions(options, model->architecture()); });
  failures.collect([&] { train::require_built(options); });
  collect_device(options, failures);
  collect_files(options, failures);
  collect_drives(options, failures);
  failures.throw_if_any("cannot start strata eval");
  auto tokenizer = open_tokenizer(options, false);
  train::RunFacts facts = inference_facts(options);
  facts.data_bytes = data::Dataset::least_bytes(model->architecture().vocabulary);
  train::require_fit(train::frozen_spec(model->spec()), options, facts);  // before data is read
  const bool part = options.is_given("eval-fraction");
  const auto data = open_data(options, model->architecture(), tokenizer.get(),
                              {.holds_out = part,
                               .keeps_tail = !part,
                               .room_bytes = train::room_for_reading(options, facts)});
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

// Forward passes over a growing text.
class Generation::Passes {
 public:
  // `options.sequence_length` is the longest text, `held_bytes` the memory of the tokenizer.
  Passes(const config::Options& options, const model::ModelDirectory& model, int64_t held_bytes,
         train::WorkProgress progress)
      : progress_(std::move(progress)),
        options_(options),
        model_(model),
        facts_(inference_facts(options)),
        longest_(options.sequence_length),
        held_bytes_(held_bytes) {}

  const std::vector<float>& next_logits(const std::vector<int32_t>& text) {
    const int64_t length = length_for(static_cast<int64_t>(text.size()));
    if (!inference_ || length != options_.sequence_length) prepare(length);
    return inference_->next_logits(text);
  }

 private:
  // longrope uses other factors for texts within the original positions than for longer texts.
  int64_t length_for(int64_t tokens) const {
    const model::Rope& rope = model_.architecture().rope;
    const bool has_two = rope.scaling == model::RopeScaling::kLongRope;
    if (!has_two || tokens > rope.original_max_position) return longest_;
    return std::min(longest_, rope.original_max_position);
  }

  void prepare(int64_t length) {
    inference_.reset();
    options_.sequence_length = length;
    plan_ = inference_plan(options_, model_, facts_, held_bytes_);
    inference_.emplace(plan_, options_, model_, options_.resume_checkpoint,
                       std::exchange(progress_, nullptr));
  }

  train::WorkProgress progress_;  // of the first time; later there is text before
  config::Options options_;
  const model::ModelDirectory& model_;
  const train::RunFacts facts_;
  const int64_t longest_;
  const int64_t held_bytes_;
  train::RunPlan plan_;
  std::optional<train::Inference> inference_;
};

Generation::Generation(const config::Options& given, train::WorkProgress progress)
    : options_(with_named_checkpoint(given)) {
  config::Options& options = options_;
  options.ranks = options.accumulate = options.micro_batch = 1;
  Failures failures;
  model_ = collect_model(options, failures);
  if (model_) {
    failures.collect([&] {
      if (options.is_given("sequence-length")) require_positions(options, model_->architecture());
    });
    failures.collect([&] { tokenizer_ = open_tokenizer(options, true); });
  }
  failures.collect([&] { train::require_built(options); });
  collect_device(options, failures);
  collect_files(options, failures);
  collect_drives(options, failures);
  failures.throw_if_any("cannot start strata generate");
  ids_ = tokenizer_->encode(options.prompt);
  if (ids_.empty()) ids_.push_back(first_id(*tokenizer_, options));
  set_longest_text(static_cast<int64_t>(ids_.size()), model_->architecture(), options);
  malloc_trim(0);  // returns the memory that reading the tokenizer needed
  passes_ = std::make_unique<Passes>(options, *model_, tokenizer_->bytes(), std::move(progress));
}

Generation::~Generation() = default;

void Generation::run(const std::function<void(const std::string& piece)>& emit) {
  train::TokenSampler sampler({.temperature = options_.temperature,
                               .top_k = options_.top_k,
                               .top_p = options_.top_p,
                               .seed = static_cast<uint64_t>(options_.seed)});
  text::StreamDecoder decoder(*tokenizer_);
  for (; new_tokens_ < options_.max_new_tokens; ++new_tokens_) {
    const std::vector<float>& logits = passes_->next_logits(ids_);
    const int32_t next =
        sampler.next(logits.data(), model_->architecture().vocabulary, 0, new_tokens_);
    if (tokenizer_->eos_id() && next == *tokenizer_->eos_id()) break;
    ids_.push_back(next);
    emit(next < tokenizer_->vocabulary_size() ? decoder.push(next) : "");
  }
  emit(decoder.finish());
}

Exported export_model(const config::Options& given) {
  const config::Options options = with_named_checkpoint(given);
  if (options.resume_checkpoint.empty()) {
    throw Error(ErrorCode::kUsage,
                "export: no checkpoint given (add --resume with a run, RUN/best or "
                "RUN/checkpoints/step-000123)");
  }
  Failures failures;
  failures.collect([&] {
    if (!std::filesystem::exists(options.out) || options.force) return;
    throw Error(ErrorCode::kConfig,
                "out: " + options.out + ": exists already (choose another, or add --force)");
  });
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
  failures.throw_if_any("cannot start strata export");
  const checkpoint::CheckpointManifest manifest =
      checkpoint::read_manifest(options.resume_checkpoint);
  const model::ModelSpec spec =
      train::spec_of_checkpoint(manifest, *model, options.resume_checkpoint);
  checkpoint::ModelSource frozen(*model, spec);
  checkpoint::CheckpointReader reader(options.resume_checkpoint, spec, manifest.recipe, frozen);
  auto notes = checkpoint::export_notes(*model, manifest.recipe, options.export_dtype);
  for (const std::string& note : notes) log(LogLevel::kInfo, "export: " + note);
  checkpoint::export_checkpoint(
      reader, *model, spec,
      {.path = options.out, .dtype = checkpoint::dtype_of(options.export_dtype)});
  return {.step = manifest.step, .notes = std::move(notes)};
}

}  // namespace strata::session

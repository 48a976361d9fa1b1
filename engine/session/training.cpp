// SPDX-License-Identifier: Apache-2.0
#include "engine/session/training.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_link.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/checkpoint/model_source.h"
#include "engine/config/mesh_option.h"
#include "engine/data/chat_records.h"
#include "engine/exec/devices.h"
#include "engine/model_files/file.h"
#include "engine/model_files/other_files.h"
#include "engine/model_files/path_errors.h"
#include "engine/session/mesh_setup.h"
#include "engine/session/model_rate.h"
#include "engine/session/prompts.h"
#include "engine/train/best_checkpoint.h"
#include "engine/train/executor_options.h"
#include "engine/train/plan_report.h"
#include "engine/train/run_summary.h"

namespace strata::session {
namespace {

void refuse_second_run(const config::Options& options, const train::RunDirectory& run) {
  if (!run.has_run() || options.force) return;
  throw Error(ErrorCode::kConfig, "out: " + run.path() +
                                      ": already has a run (add --resume to continue it, or "
                                      "--force to start over, or choose another --out)");
}

// What the exported model depends on beside the checkpoint.
constexpr std::array<const char*, 2> kOfExport = {"export_dtype", "chat_template"};

config::Json options_json(const config::Options& options) {
  return config::Json::parse(config::to_json(config::Command::kTrain, options), "options");
}

// Sets the result of a run that had nothing left to do: the checkpoint with which it began.
void set_checkpoint(const std::string& path, train::TrainResult& result) {
  result.checkpoint = path;
  for (const checkpoint::StateFile& file : checkpoint::read_manifest(path).files) {
    result.state_hash += file.state_hash;
  }
}

// Plans are made with figures of a machine that may be another one than this.
std::string machine_line(const std::string& path, const std::string& name) {
  return fmt::format(
      "machine  {} of {}: predicted times are for that machine, and nothing was "
      "measured here\n",
      name, path);
}

std::string aside_of_model(const train::RunDirectory& directory) {
  return directory.model() + ".aside";
}

// Takes away the model of an earlier run, which would look like this run's. Its state is in a
// checkpoint; where that is damaged, the model stays beside until this run has written its own.
void take_away_older_model(const config::Options& options, const train::RunDirectory& directory,
                           bool keeps) {
  const std::string model = directory.model(), aside = aside_of_model(directory);
  const BlockingCall call("remove", model);
  const std::string leftover = model::leftover_of_export(model);
  if (!leftover.empty()) std::filesystem::remove_all(leftover);
  std::error_code unequal;
  if (std::filesystem::equivalent(options.model, model, unequal)) return;
  if (!keeps || !model::is_there(model)) {
    std::filesystem::remove_all(model);
    return;
  }
  std::filesystem::remove_all(aside);
  std::filesystem::rename(model, aside);
  log(LogLevel::kInfo, "resume: " + model + " is now " + aside +
                           ", and will be removed when the run has written its model (move it "
                           "away to keep it)");
}

}  // namespace

Training::Training(const config::Options& options, const std::string& cache_directory,
                   train::Job* job)
    : options_(options), cache_directory_(cache_directory), job_(job) {
  leads() ? prepare() : follow();
}

// The data is read after a check that the model fits with the least data, and the run is planned
// when the data's size is known. Memory for reading and planning is freed before the run.
void Training::prepare() {
  options_ = with_run(std::move(options_));
  std::optional<config::Machine> profile;
  open_places(profile);
  options_.samples = samples_of(options_);
  facts_ = read_facts(options_, job_);
  measure_network(!profile);
  const bool is_measured = config::chooses_mesh(options_);
  if (is_measured) measure_machine(options_, profile, cache_directory_, facts_);
  const std::string mesh_line = settle_mesh(*model_, facts_, options_);
  read_samples();
  require_fit(facts_);
  resumed_ = find_resumed(options_, directory_, *model_);
  read_data();
  check_changes(train::changed_data(resumed_.about, *data_), resumed_.path, options_);
  facts_.steps = steps_ = train::planned_steps(options_, *data_);
  facts_.done_steps = resumed_.step;
  lacks_evaluation_ = train::lacks_evaluation(options_, steps_, resumed_.step, resumed_.is_own);
  check_arithmetic();
  train::warn_of_long_step(options_, *data_);
  if (trains()) log_changes(resumed_);
  facts_.data_bytes = data_->bytes() + sample_bytes();
  train::require_fit(model_->spec(), options_, facts_);
  if (!is_measured) measure_machine(options_, profile, cache_directory_, facts_);
  if (!profile) measure_model(model_->spec(), options_, facts_);
  warn_of_short_trace();
  const double planning_since_s = now_s();
  plan_ = make_run_plan(model_->spec(), options_, facts_);
  planning_s_ = now_s() - planning_since_s;
  check_changes(train::changed_sums(resumed_.about, plan_.input.mesh, plan_.input.shape),
                resumed_.path, options_);
  check_space();
  malloc_trim(0);
  const train::PlanReport report = train::report_of(plan_);
  plan_text_ = mesh_line + train::plan_table(plan_, report);
  if (profile) plan_text_ = machine_line(options_.machine, profile->name) + plan_text_;
  plan_record_ = train::plan_record(plan_, report).dump() + "\n";
  has_its_model_ = !trains() && has_model();
  if (!has_its_model_) {
    if (directory_) model::require_only_model_files(directory_->model(), options_.model);
    export_notes_ = checkpoint::export_notes(*model_, plan_.input.recipe, options_.export_dtype);
  }
  if (job_ == nullptr) return;
  job_->give({facts_, resumed_.path, resumed_.step, lacks_evaluation_, resumed_.run, weights(),
              train::about_data(*data_).dump(),
              config::to_json(config::Command::kTrain, options_)});
}

void Training::warn_of_short_trace() const {
  const int64_t left = steps_ - std::max(resumed_.step + 1, options_.trace_from) + 1;
  if (options_.trace_steps <= left || left <= 0) return;
  log(LogLevel::kWarning,
      fmt::format("--trace-steps {}: the run has only {} to trace: trace.json will have those "
                  "(lower --trace-steps, or raise --steps)",
                  options_.trace_steps, counted(left, "step")));
}

DataUse Training::data_use() const {
  return {.holds_out = options_.eval_every > 0,
          .limits = train::limits_for_reading(options_, facts_),
          .cache_directory = cache_directory_};
}

void Training::read_data() {
  if (!tokenizer_) tokenizer_ = open_tokenizer(options_, false);
  data_ = open_data(options_, model_->architecture(), tokenizer_.get(), data_use());
  if (!samples_ || !leads()) tokenizer_.reset();  // frees memory for the run
  malloc_trim(0);
}

// Rank 0 keeps the tokenizer for the texts of samples.
void Training::read_samples() {
  if (!options_.continues_samples()) return;
  tokenizer_ = open_tokenizer(options_, true);
  samples_.emplace(std::exchange(prompts_, {}), options_, *model_, *tokenizer_);
}

double Training::checkpoint_every_s() const {
  return options_.checkpoint_every > 0 ? 0 : train::kCheckpointEveryS;
}

// Opens what the options name, and reports all mistakes at once.
void Training::open_places(std::optional<config::Machine>& profile) {
  Failures failures;
  model_ = collect_model(options_, failures);
  if (model_) {
    failures.collect([&] { require_positions(options_, model_->architecture()); });
    // These files are copied to the model at the end.
    failures.collect([&] { model::check_other_files(options_.model); });
    failures.collect([&] {
      model::ModelSpec spec = model_->spec();
      train::apply_groups(spec, options_);
    });
  }
  failures.collect(
      [&] { chat_template_ = data::template_to_export(options_.chat_template, options_.model); });
  failures.collect([&] {
    if (options_.continues_samples()) prompts_ = read_sample_prompts(options_);
  });
  failures.collect([&] { train::require_built(options_); });
  collect_device(options_, failures);
  collect_files(options_, failures);
  if (!leads()) return failures.throw_if_any("cannot start");
  profile = collect_profile(options_, failures);
  failures.collect([&] { check_scratch(options_); });
  failures.collect([&] {
    train::RunDirectory::check(options_.out);
    if (!model::is_there(options_.out)) return;
    if (options_.keep_best) train::require_place_for_best(options_.out);
    directory_.emplace(options_.out, "strata train");
    if (!options_.resume) refuse_second_run(options_, *directory_);
  });
  failures.throw_if_any("cannot start");
}

// Checks before the data is read that the run fits with the least memory for data. When it does not
// fit, the budget in the message includes all tokens.
void Training::require_fit(train::RunFacts facts) const {
  const int64_t vocabulary = model_->architecture().vocabulary;
  const bool in_file = data::are_token_files(options_.data);  // token files are not held in memory
  facts.data_bytes = sample_bytes() + (in_file ? 0 : data::Dataset::least_bytes(vocabulary));
  try {
    train::require_fit(model_->spec(), options_, facts);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit || in_file) throw;
    facts.data_bytes =
        sample_bytes() + data_bytes_for_refusal(options_, model_->architecture(), data_use());
    train::require_fit(model_->spec(), options_, facts);
    throw;
  }
}

void Training::check_arithmetic() {
  arithmetic_ = exec::arithmetic_of(config::kind_of(options_.device), options_.first_device(),
                                    options_.plugin_path);
  if (!trains()) return;
  // A start that was forced to go on here may have ended before its first checkpoint.
  const std::optional<config::Json> run =
      resumed_.is_own && directory_ ? directory_->read_run() : std::nullopt;
  const config::Json* started = run ? run->find("arithmetic") : nullptr;
  if (started != nullptr && started->is_string() && started->string() == arithmetic_) return;
  check_changes(train::changed_arithmetic(resumed_.about, options_, arithmetic_), resumed_.path,
                options_);
}

config::Json Training::run_json() const {
  config::Json json = config::Json::object();
  json.set("strata", STRATA_VERSION);
  add_to_run(resumed_, json);
  json.set("options", options_json(options_));
  json.set("arithmetic", arithmetic_);
  json.set("directory", std::filesystem::current_path().string());
  json.set("machine", config::Json::parse(config::to_json(facts_.machine), "machine"));
  return json;
}

void Training::export_model(const std::string& checkpoint) const {
  checkpoint::ModelSource frozen(*model_, *plan_.spec);
  checkpoint::CheckpointReader reader(checkpoint, *plan_.spec, plan_.input.recipe, frozen);
  checkpoint::export_checkpoint(reader, *model_, *plan_.spec,
                                {.path = directory_->model(),
                                 .dtype = checkpoint::dtype_of(options_.export_dtype),
                                 .chat_template = chat_template_});
  const std::string aside = aside_of_model(*directory_);
  const BlockingCall call("remove", aside);
  model::guarded("cannot remove " + aside, [&] { std::filesystem::remove_all(aside); });
}

// Takes over the directory. run.json is written before anything of an earlier run is changed, so
// that a resume after a kill continues from where this run began.
void Training::begin() {
  if (!directory_) directory_.emplace(options_.out, "strata train");
  if (!options_.resume) refuse_second_run(options_, *directory_);
  const int64_t last_record = resumed_.is_new ? 0 : resumed_.step;
  // A metrics file that cannot be continued is refused before anything changes. A new one is
  // created after run.json, without which the directory does not belong to a run.
  const bool continues = model::is_there(directory_->metrics());
  if (continues) metrics_.emplace(directory_->metrics(), last_record);
  has_begun_ = true;
  directory_->write_run(run_json());
  model::guarded("cannot take away the older model " + directory_->model(),
                 [&] { take_away_older_model(options_, *directory_, resumed_.passes_over); });
  checkpoint::set_aside(directory_->checkpoints(), resumed_.step, resumed_.run);
  checkpoint::collect_leftovers(directory_->checkpoints());
  if (!continues) metrics_.emplace(directory_->metrics(), last_record);
  // Files of the end of an earlier start would be taken for this one's. One without steps has no
  // end of its own.
  if (trains() || !resumed_.is_own) directory_->remove(train::kSummaryFile);
  directory_->remove(train::kTracePartFile);
  if (resumed_.is_new) {
    directory_->remove(train::kLanesFile);
    directory_->remove(train::kTraceFile);
  }
  directory_->write(train::kPlanTextFile, plan_text_);
  directory_->write(train::kPlanFile, plan_record_);
  if (options_.tensorboard) {
    event_file_.emplace(directory_->events(), last_record + 1, train::unix_time_s());
  }
}

// Whether the model in the run directory is the checkpoint's, as the options ask for it.
bool Training::has_model() const {
  if (!directory_ || !resumed_.is_own) return false;
  if (!model::is_there(directory_->model())) return false;
  const checkpoint::FoundCheckpoint newest = checkpoint::find_checkpoint(
      directory_->checkpoints(), checkpoint::CheckpointCheck::kManifest);
  if (newest.step != resumed_.step || !newest.skipped.empty()) return false;
  const std::optional<config::Json> before = directory_->read_run();
  const config::Json* options = before ? before->find("options") : nullptr;
  const config::Json now = options_json(options_);
  return options != nullptr && std::ranges::all_of(kOfExport, [&](const char* name) {
           const config::Json* then = options->find(name);
           return then != nullptr && then->dump() == now.find(name)->dump();
         });
}

// Finishes a run without steps left: exports the model if it is missing, and removes leftovers.
train::TrainResult Training::finish_without_steps() {
  train::TrainResult result;
  result.first_step = resumed_.step + 1;
  result.last_step = resumed_.step;
  result.memory = memory::read_process_memory();
  set_checkpoint(resumed_.path, result);
  if (!has_its_model_) {
    begin();
    export_model(resumed_.path);
  }
  if (resumed_.is_own) {  // the last evaluation may have ended before its checkpoint was the best
    train::BestCheckpoint(options_.out, {.keeps = options_.keep_best}).begin(resumed_.step);
  }
  if (!resumed_.passes_over) {  // what is aside stays until a checkpoint replaces it
    checkpoint::keep_last(directory_->checkpoints(), options_.keep_checkpoints,
                          checkpoint::linked_step(train::best_link(options_.out)));
  }
  if (has_its_model_) return result;
  if (!model::is_there(options_.out + "/" + train::kSummaryFile)) write_summary(result);
  return result;
}

train::TrainResult Training::train_steps(const TrainingEvents& events) {
  train::TrainJob job;
  job.options = &options_;
  job.plan = &plan_;
  job.model = model_.get();
  job.data = data_.get();
  if (leads()) {
    job.frozen = resumed_.path.empty() ? checkpoint::frozen_fingerprint(*model_, *plan_.spec)
                                       : resumed_.frozen;
  }
  job.out = options_.out;
  job.run = resumed_.run;
  job.arithmetic = arithmetic_;
  job.resume_from = resumed_.path;
  job.checkpoint_every_s = checkpoint_every_s();
  job.stop = events.stop;
  job.phase = events.phase;
  job.events.started = [&](int64_t) { leads() ? begin() : void(has_begun_ = true); };
  job.events.step = [&](const train::StepMetrics& step) {
    metrics_->append(step);
    if (event_file_) event_file_->append(step);
    if (events.step) events.step(step);
  };
  if (samples_) job.samples = &samples_->prompts();
  job.events.evaluated = [&](int64_t step, double loss,
                             const std::vector<std::vector<int32_t>>& samples) {
    train::EvaluationMetrics metrics = {.step = step,
                                        .loss = loss,
                                        .epoch = train::epochs_at(options_, *data_, step),
                                        .time_s = train::unix_time_s()};
    if (!samples.empty()) metrics.samples = samples_->texts(samples, *tokenizer_);
    metrics_->append(metrics);
    if (event_file_) event_file_->append(metrics);
    if (events.evaluated) events.evaluated(step, loss);
  };
  job.events.work = events.work;
  if (job_ != nullptr)
    job.groups = job_->join(plan_.ranks.front().mesh, train::group_options(options_));
  try {
    train::TrainResult result = train::train(job);
    if (!leads()) return result;
    if (result.last_step < result.first_step) set_checkpoint(resumed_.path, result);
    if (events.trained) events.trained();
    if (events.phase != nullptr) *events.phase = train::RunPhase::kExport;
    if (!result.stopped) export_model(result.checkpoint);
    write_summary(result);
    return result;
  } catch (const Error& error) {
    // Once the run has begun, what does not fit or is not there is no refusal that changed nothing.
    const bool is_refusal =
        error.code() == ErrorCode::kDoesNotFit || error.code() == ErrorCode::kConfig;
    if (!has_begun_ || !is_refusal) throw;
    throw Error(ErrorCode::kIo, error.what());
  }
}

train::RunAdvice Training::advise() const {
  constexpr double kLimit_s = 1;
  return train::advise({model_->spec(), options_, facts_}, planning_s_, kLimit_s);
}

void Training::write_summary(const train::TrainResult& result) const {
  const config::Json summary = train::summary_json(options_, plan_, result, now_s() - run_begin_s_);
  directory_->write(train::kSummaryFile, summary.dump(2) + "\n");
}

train::TrainResult Training::run(const TrainingEvents& events) {
  run_begin_s_ = now_s();
  for (const std::string& note : export_notes_) log(LogLevel::kInfo, "export: " + note);
  train::TrainResult result;
  if (trains()) {
    result = train_steps(events);
  } else if (leads()) {
    result = finish_without_steps();
  }
  if (job_ != nullptr) job_->end(result.stopped);
  return result;
}

}  // namespace strata::session

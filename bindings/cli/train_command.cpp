// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "bindings/cli/commands.h"
#include "bindings/cli/setup.h"
#include "bindings/cli/train_output.h"
#include "bindings/cli/train_stop.h"
#include "bindings/cli/train_summary.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/base/log.h"
#include "engine/model_files/other_files.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_reader.h"
#include "engine/train/model_sink.h"
#include "engine/train/model_source.h"
#include "engine/train/plan_report.h"
#include "engine/train/resume_check.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"
#include "io/scratch_file.h"
#include "io/volume.h"

namespace strata::cli {
namespace {

// Opens a scratch volume of the least size: what is wrong with a directory is said before anything
// is created.
void check_scratch(const config::Options& options) {
  if (options.nvme.empty()) return;
  (void)io::free_bytes_of(options.nvme);
  io::VolumeOptions volume;
  volume.directories = options.nvme;
  volume.bytes = volume.stripe_bytes;
  volume.owner = "strata train (checking)";
  const io::Volume opened(volume);
}

void refuse_second_run(const config::Options& options, const train::RunDirectory& run) {
  if (!run.has_run() || options.force) return;
  throw Error(ErrorCode::kConfig, "out: " + run.path() +
                                      ": holds a run already (add --resume to go on with it, or "
                                      "--force to start over, or choose another --out)");
}

// A resume would take later checkpoints for this run's, and the pruning would keep them for its
// own.
void refuse_later_checkpoints(const config::Options& options, const train::RunDirectory& run,
                              int64_t done_step) {
  // Without a name it is the newest that is whole; what is later is damaged, and is set aside.
  if (options.force || options.resume_checkpoint.empty()) return;
  const train::FoundCheckpoint newest =
      train::find_checkpoint(run.checkpoints(), train::CheckpointCheck::kManifest);
  if (newest.step <= done_step) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("resume: {} is of step {}, but {} goes up to step {} (add --force to "
                          "delete the later checkpoints, or choose another --out)",
                          options.resume_checkpoint, done_step, run.path(), newest.step));
}

// The checkpoint to go on from: empty for a run from the model.
std::string checkpoint_to_resume(const config::Options& options,
                                 const std::optional<train::RunDirectory>& run) {
  if (!options.resume) return "";
  if (!options.resume_checkpoint.empty()) return options.resume_checkpoint;
  train::FoundCheckpoint found;
  if (run) {
    found = train::find_checkpoint(run->checkpoints(), train::CheckpointCheck::kBlocks);
  }
  for (const train::SkippedCheckpoint& skipped : found.skipped) {
    log(LogLevel::kWarning,
        fmt::format("resume: {} is passed over{}: {}", skipped.path,
                    found.path.empty() ? "" : ", going on from " + found.path, skipped.reason));
  }
  if (found.path.empty() && !found.skipped.empty()) {
    throw Error(ErrorCode::kCorrupt, "resume: " + options.out +
                                         ": none of its checkpoints can be used (add --force "
                                         "instead of --resume to start over)");
  }
  if (found.path.empty()) {
    log(LogLevel::kInfo,
        "resume: " + options.out + " has no checkpoint yet; starting from the model");
  }
  return found.path;
}

config::Json run_json(const config::Options& options, const train::RunFacts& facts) {
  config::Json run = config::Json::object();
  run.set("strata", STRATA_VERSION);
  run.set("options",
          config::Json::parse(config::to_json(config::Command::kTrain, options), "options"));
  run.set("machine", config::Json::parse(config::to_json(facts.machine), "machine"));
  return run;
}

void export_model(const std::string& checkpoint, const model::ModelDirectory& model,
                  const train::RunPlan& plan, const train::ModelSinkOptions& options) {
  train::ModelSource frozen(model, *plan.spec);
  train::CheckpointReader reader(checkpoint, *plan.spec, plan.input.recipe, frozen);
  train::export_checkpoint(reader, model, *plan.spec, options);
}

// The checkpoint to go on from; of step 0 without one.
struct Resumed {
  std::string path;
  int64_t step = 0;
  config::Json about;            // about_run() of the run that made it
  train::ResumeChanges changes;  // of options and frozen weights
  train::FrozenFingerprint frozen;
};

// Refuses what is no checkpoint of this model; reads no state but frozen weights that changed.
Resumed look_at(const std::string& checkpoint, const model::ModelDirectory& model,
                const config::Options& options) {
  if (checkpoint.empty()) return {};
  model::ModelSpec spec = model.spec();
  train::apply_groups(spec, options);
  train::ModelSource frozen(model, spec);
  const train::CheckpointReader reader(checkpoint, spec, train::recipe_of(options), frozen);
  const config::Json& about = reader.manifest().trainer;
  train::ResumeChanges changes = train::changed_options(about, options);
  const auto here = train::frozen_fingerprint(model, spec, train::frozen_of(about));
  for (std::string& change : train::changed_model(about, here, model.path()).breaking) {
    changes.breaking.push_back(std::move(change));
  }
  return {checkpoint, reader.manifest().step, about, changes, here};
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// A run that would not go on exactly is refused, or told with --force.
void check_changes(const train::ResumeChanges& changes, const Resumed& resumed,
                   const config::Options& options) {
  const std::string breaking = joined(changes.breaking);
  if (!breaking.empty() && !options.force) {
    throw Error(ErrorCode::kUsage,
                fmt::format("resume: {}: the run would not go on exactly: {} (give what the "
                            "checkpoint was made with, or add --force to go on with the new)",
                            resumed.path, breaking));
  }
  const std::string allowed = joined(changes.allowed);
  if (!breaking.empty()) log(LogLevel::kWarning, "resume: not an exact continuation: " + breaking);
  if (!allowed.empty()) log(LogLevel::kInfo, "resume: from here on " + allowed);
}

// A run that had nothing left to do ends with the checkpoint it began with.
void set_checkpoint(const std::string& path, train::TrainResult& result) {
  result.checkpoint = path;
  for (const train::StateFile& file : train::read_manifest(path).files) {
    result.state_hash += file.state_hash;
  }
}

// The model of an earlier end would pass for this run's; a checkpoint has its state.
void remove_older_model(const config::Options& options, const train::RunDirectory& directory) {
  std::error_code unequal;
  if (std::filesystem::equivalent(options.model, directory.model(), unequal)) return;
  std::filesystem::remove_all(directory.model());
}

// Scratch that will come out of the same file system as `directory`.
int64_t scratch_beside(const std::string& directory, const config::Options& options,
                       const train::RunPlan& plan) {
  int64_t scratch = 0;
  for (const plan::Plan& rank : plan.ranks) {
    scratch += rank.arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)];
  }
  struct stat out = {};
  int64_t beside = 0;
  for (const std::string& path : options.nvme) {
    struct stat drive = {};
    const bool same = stat(directory.c_str(), &out) == 0 && stat(path.c_str(), &drive) == 0 &&
                      out.st_dev == drive.st_dev;
    if (same) beside += scratch / static_cast<int64_t>(options.nvme.size());
  }
  return beside;
}

// Room for what the run will write: the model, the checkpoints that are kept and the one being
// written, and scratch where it shares the file system.
void check_space(const config::Options& options, const model::ModelDirectory& model,
                 const train::RunPlan& plan, int64_t steps) {
  const std::string directory = model::nearest_directory(options.out);
  const int64_t model_bytes = model::export_bytes(model, train::dtype_of(options.export_dtype));
  const int64_t every = options.checkpoint_every > 0 ? options.checkpoint_every : steps;
  const int64_t checkpoints =
      std::min<int64_t>(options.keep_checkpoints + 1, (steps + every - 1) / every);
  model::require_free_space(directory,
                            checkpoints * train::checkpoint_bytes(*plan.spec) + model_bytes +
                                scratch_beside(directory, options, plan),
                            "checkpoints, the model and scratch");
}

// Before the data is read, with the least that it can take. Where that does not fit, the budget
// that the refusal names counts all of its tokens.
void require_fit(const model::ModelDirectory& model, const config::Options& options,
                 train::RunFacts facts) {
  const int64_t vocabulary = model.architecture().vocabulary;
  const bool in_file = options.data.ends_with(".bin");  // token files are read as they are needed
  if (!in_file) facts.data_bytes = train::Dataset::least_bytes(vocabulary);
  try {
    train::require_fit(model.spec(), options, facts);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit || in_file) throw;
    facts.data_bytes = data_bytes_for_refusal(options, model.architecture());
    train::require_fit(model.spec(), options, facts);
    throw;
  }
}

// What the options name.
struct Places {
  std::unique_ptr<model::ModelDirectory> model;
  std::optional<config::Machine> profile;        // of --machine
  std::optional<train::RunDirectory> directory;  // of --out, where a run was before
};

// All that is wrong with them is told together.
void open_places(const config::Options& options, Places& places) {
  Failures failures;
  places.model = collect_model(options, failures);
  if (const model::ModelDirectory* model = places.model.get()) {
    failures.collect([&] { require_positions(options, model->architecture()); });
    // They are in the model that is made at the end.
    failures.collect([&] { model::check_other_files(options.model); });
    failures.collect([&] {
      model::ModelSpec spec = model->spec();
      train::apply_groups(spec, options);
    });
  }
  failures.collect([&] { train::require_built(options, false); });
  collect_files(options, failures);
  places.profile = collect_profile(options, failures);
  failures.collect([&] { check_scratch(options); });
  failures.collect([&] {
    train::RunDirectory::check(options.out);
    if (!std::filesystem::exists(options.out)) return;
    places.directory.emplace(options.out, "strata train");
    if (!options.resume) refuse_second_run(options, *places.directory);
  });
  failures.throw_if_any("cannot start strata train");
}

}  // namespace

// Everything that can be refused is, and the state is loaded, before --out is created or changed.
int run_train(const config::Options& options, const config::Json& deepspeed) {
  Places places;
  open_places(options, places);
  const std::unique_ptr<model::ModelDirectory>& model = places.model;
  std::optional<train::RunDirectory>& directory = places.directory;
  train::RunFacts facts = read_facts_to_run(options);
  require_fit(*model, options, facts);
  const std::string resume_from = checkpoint_to_resume(options, directory);
  const Resumed resumed = look_at(resume_from, *model, options);
  const int64_t done_step = resumed.step;
  check_changes(resumed.changes, resumed, options);
  if (directory && options.resume) refuse_later_checkpoints(options, *directory, done_step);
  auto tokenizer = open_tokenizer(options, false);
  const auto data = open_data(options, model->architecture(), tokenizer.get(),
                              {.holds_out = options.eval_every > 0});
  check_changes(train::changed_data(resumed.about, *data), resumed, options);
  tokenizer.reset();  // its vocabulary and cache are room for the run
  malloc_trim(0);
  facts.data_bytes = data->bytes();
  train::require_fit(model->spec(), options, facts);  // now that the data's size is known
  measure_machine(options, places.profile, facts);
  const train::RunPlan plan = make_run_plan(model->spec(), options, facts);
  check_space(options, *model, plan, train::planned_steps(options, *data));
  malloc_trim(0);  // what planning needed
  const std::string table = train::plan_table(plan, train::report_of(plan));
  TrainOutput output(options.json);
  output.say(data->description() + "\n" + table);
  if (!resume_from.empty()) output.say("resume   from " + resume_from + "\n");
  const auto notes = train::export_notes(*model, plan.input.recipe, options.export_dtype);
  const auto export_to = [&](const std::string& path) {
    return train::ModelSinkOptions{.path = path, .dtype = train::dtype_of(options.export_dtype)};
  };
  if (directory && done_step >= train::planned_steps(options, *data)) {
    train::TrainResult result;
    result.first_step = done_step + 1;
    result.last_step = done_step;
    set_checkpoint(resume_from, result);
    // A run that was killed after its last checkpoint has no model yet, or not in these types.
    const bool exports =
        !std::filesystem::exists(directory->model()) || options.is_given("export-dtype");
    if (exports) export_model(resume_from, *model, plan, export_to(directory->model()));
    const std::vector<std::string> none;  // the model that is there may have other types
    const Outcome outcome = {options, deepspeed, plan, result, exports ? notes : none};
    output.conclude(train_summary(outcome), train_summary_json(outcome));
    return 0;
  }

  for (const std::string& note : notes) log(LogLevel::kInfo, "export: " + note);
  const train::FrozenFingerprint frozen =
      resume_from.empty() ? train::frozen_fingerprint(*model, *plan.spec) : resumed.frozen;
  StopRequest& request = handle_stop_signals();
  Reporter reporter(output, done_step + 1, train::planned_steps(options, *data));
  train::TrainJob job;
  job.options = &options;
  job.plan = &plan;
  job.model = model.get();
  job.data = data.get();
  job.frozen = frozen;
  job.out = options.out;
  job.resume_from = resume_from;
  job.stop = &request.stop;
  job.phase = &request.phase;
  bool begun = false;
  job.events.started = [&](int64_t first_step) {
    if (!directory) directory.emplace(options.out, "strata train");
    if (!options.resume) refuse_second_run(options, *directory);
    // One that cannot be continued is refused before anything changes; a new one comes after
    // run.json, without which a directory is nobody's.
    const bool continues = std::filesystem::exists(directory->metrics());
    if (continues) reporter.open_metrics(directory->metrics(), first_step);
    train::set_aside_after(directory->checkpoints(), first_step - 1);
    train::collect_leftovers(directory->checkpoints());
    remove_older_model(options, *directory);
    directory->write_run(run_json(options, facts));
    if (!continues) reporter.open_metrics(directory->metrics(), first_step);
    directory->write_plan(table);
    begun = true;
  };
  job.events.step = [&](const train::StepMetrics& step) { reporter.step(step); };
  job.events.evaluated = [&](int64_t step, double loss) { reporter.evaluated(step, loss); };
  const double begin_s = now_s();
  train::TrainResult result;
  try {
    result = train::train(job);
    reporter.finish();
    if (result.checkpoint.empty()) set_checkpoint(resume_from, result);
    request.phase = train::RunPhase::kExport;
    if (!result.stopped) {
      export_model(result.checkpoint, *model, plan, export_to(directory->model()));
    }
  } catch (const Error& error) {
    // Once it has begun, what does not fit any more is a failure that left the last checkpoint, not
    // a refusal that changed nothing.
    if (!begun || error.code() != ErrorCode::kDoesNotFit) throw;
    throw Error(ErrorCode::kIo, error.what());
  }
  const Outcome outcome = {options, deepspeed, plan, result, notes, now_s() - begin_s};
  output.conclude(train_summary(outcome), train_summary_json(outcome));
  return 0;
}

}  // namespace strata::cli

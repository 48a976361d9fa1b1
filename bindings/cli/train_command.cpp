// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "bindings/cli/commands.h"
#include "bindings/cli/setup.h"
#include "bindings/cli/train_output.h"
#include "bindings/cli/train_resume.h"
#include "bindings/cli/train_stop.h"
#include "bindings/cli/train_summary.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/disk_use.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/checkpoint/model_source.h"
#include "engine/model_files/other_files.h"
#include "engine/train/plan_report.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"
#include "io/scratch_file.h"
#include "io/volume.h"

namespace strata::cli {
namespace {

// Where --checkpoint-every says nothing: what a crash can lose at most.
constexpr double kCheckpointEveryS = 30 * 60;

std::string saving_line(const config::Options& options, double predicted_step_s) {
  const int64_t steps = options.checkpoint_every;
  if (steps == 0) {
    return fmt::format(
        "saving   a checkpoint every {:.0f} min and at the end (--checkpoint-every "
        "N: every N steps)\n",
        kCheckpointEveryS / 60);
  }
  return fmt::format("saving   a checkpoint every {} steps, {} as predicted, and at the end\n",
                     steps, train::format_duration(predicted_step_s * static_cast<double>(steps)));
}

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

// Room for what the run will write: the model, the checkpoints, and scratch where it shares the
// file system.
void check_space(const config::Options& options, const model::ModelDirectory& model,
                 const train::RunPlan& plan, const Resumed& resumed, int64_t steps) {
  const std::string directory = model::nearest_directory(options.out);
  const double per_checkpoint = options.checkpoint_every > 0
                                    ? static_cast<double>(options.checkpoint_every)
                                    : kCheckpointEveryS / plan.predicted_step_s;
  const auto left = static_cast<double>(std::max<int64_t>(0, steps - resumed.step));
  constexpr double kMost = 1e9;
  train::DiskUse use;
  use.held = train::held_checkpoints(options.out + "/checkpoints", resumed.step, resumed.run);
  use.older_model_bytes = train::bytes_below(options.out + "/model");
  use.checkpoint_bytes = train::checkpoint_bytes(*plan.spec);
  use.checkpoint_count = static_cast<int64_t>(std::min(kMost, std::ceil(left / per_checkpoint)));
  use.keep = options.keep_checkpoints;
  use.model_bytes = model::export_bytes(model, train::dtype_of(options.export_dtype));
  use.scratch_bytes = scratch_beside(directory, options, plan);
  model::require_free_space(directory, train::free_bytes_needed(use),
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
    // The export would refuse it at the end.
    model::require_no_folder(places.directory->model(), model::kTemplatesFolder, "model");
  });
  failures.throw_if_any("cannot start strata train");
}

// A run of which nothing can be refused any more.
struct Run {
  const config::Options& options;
  const model::ModelDirectory& model;
  const train::Dataset& data;
  const train::RunFacts& facts;
  const train::RunPlan& plan;
  const Resumed& resumed;
  const std::string table;  // of the plan
  std::optional<train::RunDirectory>& directory;
};

config::Json options_json(const config::Options& options) {
  return config::Json::parse(config::to_json(config::Command::kTrain, options), "options");
}

config::Json run_json(const Run& run) {
  config::Json json = config::Json::object();
  json.set("strata", STRATA_VERSION);
  add_to_run(run.resumed, json);
  json.set("options", options_json(run.options));
  json.set("machine", config::Json::parse(config::to_json(run.facts.machine), "machine"));
  return json;
}

void export_model(const Run& run, const std::string& checkpoint) {
  train::ModelSource frozen(run.model, *run.plan.spec);
  train::CheckpointReader reader(checkpoint, *run.plan.spec, run.plan.input.recipe, frozen);
  train::export_checkpoint(
      reader, run.model, *run.plan.spec,
      {.path = run.directory->model(), .dtype = train::dtype_of(run.options.export_dtype)});
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

// From here on the directory is this run's. Whenever it is killed, a resume goes on from where this
// run did: run.json says so before anything of an earlier run moves.
void begin(const Run& run, Reporter& reporter) {
  if (!run.directory) run.directory.emplace(run.options.out, "strata train");
  train::RunDirectory& directory = *run.directory;
  if (!run.options.resume) refuse_second_run(run.options, directory);
  const int64_t first_record = run.resumed.is_new ? 1 : run.resumed.step + 1;
  // One that cannot be continued is refused before anything changes; a new one comes after
  // run.json, without which a directory is nobody's.
  const bool continues = std::filesystem::exists(directory.metrics());
  if (continues) reporter.open_metrics(directory.metrics(), first_record);
  remove_older_model(run.options, directory);
  directory.write_run(run_json(run));
  train::set_aside(directory.checkpoints(), run.resumed.step, run.resumed.run);
  train::collect_leftovers(directory.checkpoints());
  if (!continues) reporter.open_metrics(directory.metrics(), first_record);
  directory.write_plan(run.table);
}

// Whether the model in the run directory is that of the checkpoint, in the types that are wanted.
bool has_model(const Run& run) {
  if (!run.directory || !run.resumed.is_own) return false;
  if (!std::filesystem::exists(run.directory->model())) return false;
  const train::FoundCheckpoint newest =
      train::find_checkpoint(run.directory->checkpoints(), train::CheckpointCheck::kManifest);
  if (newest.step != run.resumed.step || !newest.skipped.empty()) return false;
  const std::optional<config::Json> before = run.directory->read_run();
  const config::Json* options = before ? before->find("options") : nullptr;
  const config::Json* types = options != nullptr ? options->find("export_dtype") : nullptr;
  return types != nullptr &&
         types->dump() == options_json(run.options).find("export_dtype")->dump();
}

// A run with no step left: the model is made, where it is not there, and what the run leaves goes.
train::TrainResult finish_without_steps(const Run& run, bool has_its_model, Reporter& reporter) {
  train::TrainResult result;
  result.first_step = run.resumed.step + 1;
  result.last_step = run.resumed.step;
  result.memory = memory::read_process_memory();
  set_checkpoint(run.resumed.path, result);
  if (has_its_model) return result;
  begin(run, reporter);
  export_model(run, run.resumed.path);
  train::keep_last(run.directory->checkpoints(), run.options.keep_checkpoints);
  return result;
}

train::TrainResult train_steps(const Run& run, Reporter& reporter) {
  StopRequest& request = handle_stop_signals();
  train::TrainJob job;
  job.options = &run.options;
  job.plan = &run.plan;
  job.model = &run.model;
  job.data = &run.data;
  job.frozen = run.resumed.path.empty() ? train::frozen_fingerprint(run.model, *run.plan.spec)
                                        : run.resumed.frozen;
  job.out = run.options.out;
  job.run = run.resumed.run;
  job.resume_from = run.resumed.path;
  if (run.options.checkpoint_every == 0) job.checkpoint_every_s = kCheckpointEveryS;
  job.stop = &request.stop;
  job.phase = &request.phase;
  bool begun = false;
  job.events.started = [&](int64_t) {
    begin(run, reporter);
    begun = true;
  };
  job.events.step = [&](const train::StepMetrics& step) { reporter.step(step); };
  job.events.evaluated = [&](int64_t step, double loss) { reporter.evaluated(step, loss); };
  try {
    const train::TrainResult result = train::train(job);
    reporter.finish();
    request.phase = train::RunPhase::kExport;
    if (!result.stopped) export_model(run, result.checkpoint);
    return result;
  } catch (const Error& error) {
    // Once it has begun, what does not fit any more is a failure that left the last checkpoint, not
    // a refusal that changed nothing.
    if (!begun || error.code() != ErrorCode::kDoesNotFit) throw;
    throw Error(ErrorCode::kIo, error.what());
  }
}

}  // namespace

// Everything that can be refused is, and the state is loaded, before --out is created or changed.
int run_train(const config::Options& options, const config::Json& deepspeed) {
  Places places;
  open_places(options, places);
  const std::unique_ptr<model::ModelDirectory>& model = places.model;
  train::RunFacts facts = read_facts(options);
  require_fit(*model, options, facts);
  const Resumed resumed = find_resumed(options, places.directory, *model);
  auto tokenizer = open_tokenizer(options, false);
  const auto data = open_data(
      options, model->architecture(), tokenizer.get(),
      {.holds_out = options.eval_every > 0, .room_bytes = train::room_for_reading(options, facts)});
  check_changes(train::changed_data(resumed.about, *data), resumed.path, options);
  tokenizer.reset();  // its vocabulary and cache are room for the run
  malloc_trim(0);
  facts.data_bytes = data->bytes();
  train::require_fit(model->spec(), options, facts);  // now that the data's size is known
  measure_machine(options, places.profile, facts);
  const train::RunPlan plan = make_run_plan(model->spec(), options, facts);
  const int64_t steps = train::planned_steps(options, *data);
  check_space(options, *model, plan, resumed, steps);
  malloc_trim(0);  // what planning needed
  TrainOutput output(options.json);
  const Run run = {options,
                   *model,
                   *data,
                   facts,
                   plan,
                   resumed,
                   train::plan_table(plan, train::report_of(plan)),
                   places.directory};
  output.say(data->description() + "\n" + run.table + saving_line(options, plan.predicted_step_s));
  if (!resumed.path.empty()) {
    output.say("resume   from " + resumed.path + "; options that are not given are the run's\n");
  }
  std::vector<std::string> notes =
      train::export_notes(*model, plan.input.recipe, options.export_dtype);
  const bool trains = resumed.path.empty() || resumed.step < steps;
  const bool has_its_model = !trains && has_model(run);
  if (has_its_model) notes.clear();  // they are of a model that is made now
  for (const std::string& note : notes) log(LogLevel::kInfo, "export: " + note);
  Reporter reporter(output, resumed.step + 1, steps);
  const double begin_s = now_s();
  const train::TrainResult result =
      trains ? train_steps(run, reporter) : finish_without_steps(run, has_its_model, reporter);
  const Outcome outcome = {options, deepspeed, plan, result, notes, now_s() - begin_s};
  output.conclude(train_summary(outcome), train_summary_json(outcome));
  return 0;
}

}  // namespace strata::cli

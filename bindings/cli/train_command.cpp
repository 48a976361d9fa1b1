// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "bindings/cli/commands.h"
#include "bindings/cli/setup.h"
#include "bindings/cli/train_summary.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_reader.h"
#include "engine/train/metrics_progress.h"
#include "engine/train/model_sink.h"
#include "engine/train/model_source.h"
#include "engine/train/plan_report.h"
#include "engine/train/run_directory.h"
#include "engine/train/trainer.h"
#include "io/volume.h"

namespace strata::cli {
namespace {

// The one thing that a signal handler may touch.
std::atomic<bool> stop_requested = false;

void on_stop_signal(int) {
  if (stop_requested.exchange(true)) _exit(130);
}

// The first SIGINT or SIGTERM asks for a checkpoint after the current step, the second ends at
// once.
void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// Opens a scratch volume of the least size: what is wrong with a directory is said before anything
// is created.
void check_scratch(const config::Options& options) {
  if (options.nvme.empty()) return;
  io::VolumeOptions volume;
  volume.directories = options.nvme;
  volume.bytes = volume.stripe_bytes;
  volume.owner = "strata train (checking)";
  const io::Volume opened(volume);
}

// The checkpoint to go on from: empty for a run from the model.
std::string checkpoint_to_resume(const config::Options& options, const train::RunDirectory& run) {
  if (!options.resume) {
    if (run.has_run() && !options.force) {
      throw Error(ErrorCode::kConfig,
                  "out: " + run.path() +
                      ": holds a run already (add --resume to go on with it, or "
                      "--force to start over, or choose another --out)");
    }
    return "";
  }
  if (!options.resume_checkpoint.empty()) return options.resume_checkpoint;
  const train::FoundCheckpoint found = train::find_checkpoint(run.checkpoints(), false);
  for (const train::SkippedCheckpoint& skipped : found.skipped) {
    log(LogLevel::kWarning,
        fmt::format("resume: {} is passed over: {}", skipped.path, skipped.reason));
  }
  if (found.path.empty()) {
    log(LogLevel::kInfo,
        "resume: " + run.path() + " has no checkpoint yet; starting from the model");
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

int terminal_columns() {
  struct winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Progress on the terminal and records in metrics.jsonl.
class Reporter {
 public:
  Reporter(const std::string& metrics_path, int64_t first_step, int64_t steps)
      : metrics_(metrics_path, first_step - 1),
        progress_({.steps = steps,
                   .first_step = first_step,
                   .is_terminal = isatty(STDOUT_FILENO) == 1,
                   .columns = terminal_columns()}) {}

  train::TrainEvents events() {
    train::TrainEvents events;
    events.step = [this](const train::StepMetrics& step) {
      metrics_.append(step);
      print(progress_.step(step, now_s()));
    };
    events.evaluated = [this](int64_t step, double loss) {
      print(progress_.finish());
      print(fmt::format("eval     step {}: held-out loss {:.4f}, perplexity {:.2f}\n", step, loss,
                        std::exp(loss)));
    };
    return events;
  }
  void finish() { print(progress_.finish()); }

 private:
  static void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  train::MetricsWriter metrics_;
  train::ProgressLine progress_;
};

void export_model(const std::string& checkpoint, const model::ModelDirectory& model,
                  const train::RunPlan& plan, const std::string& path) {
  train::ModelSource frozen(model, *plan.spec);
  train::CheckpointReader reader(checkpoint, *plan.spec, plan.input.recipe, frozen);
  train::export_checkpoint(reader, model, *plan.spec, {.path = path, .recipe = plan.input.recipe});
}

int64_t step_of(const std::string& checkpoint) {
  return checkpoint.empty() ? 0 : train::read_manifest(checkpoint).step;
}

}  // namespace

int run_train(const config::Options& options) {
  const auto model = open_model(options);
  train::RunFacts facts = read_facts(options);
  train::require_fit(model->spec(), options, facts);
  check_scratch(options);
  std::optional<train::RunDirectory> directory;
  if (std::filesystem::exists(options.out)) directory.emplace(options.out, "strata train");
  std::string resume_from = directory ? checkpoint_to_resume(options, *directory) : "";
  const auto tokenizer = open_tokenizer(options, false);
  const auto data = open_data(options, *model, tokenizer.get(), options.eval_every > 0);
  facts.data_bytes = data->bytes();
  measure_machine(options, facts);
  const train::RunPlan plan = make_run_plan(model->spec(), options, facts);
  const train::PlanReport report = train::report_of(plan);
  std::fputs((data->description() + "\n" + train::plan_table(plan, report)).c_str(), stdout);

  if (!directory) directory.emplace(options.out, "strata train");
  if (!resume_from.empty()) std::printf("resume   from %s\n", resume_from.c_str());
  if (step_of(resume_from) >= train::planned_steps(options, *data)) {
    std::printf("done     all %lld steps of this run were done before (raise --steps to go on)\n",
                static_cast<long long>(step_of(resume_from)));
    return 0;
  }
  directory->write_run(run_json(options, facts));
  directory->write_plan(train::plan_table(plan, report));
  catch_stop_signals();
  const int64_t first_step = step_of(resume_from) + 1;
  Reporter reporter(directory->metrics(), first_step, train::planned_steps(options, *data));
  train::TrainJob job;
  job.options = &options;
  job.plan = &plan;
  job.model = model.get();
  job.data = data.get();
  job.out = directory->path();
  job.resume_from = resume_from;
  job.stop = &stop_requested;
  job.events = reporter.events();
  const double begin_s = now_s();
  const train::TrainResult result = train::train(job);
  reporter.finish();
  const std::string last = result.checkpoint.empty() ? resume_from : result.checkpoint;
  if (!result.stopped) export_model(last, *model, plan, directory->model());
  std::fputs(train_summary(options, plan, result, now_s() - begin_s).c_str(), stdout);
  return 0;
}

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bindings/cli/cache_directory.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/job_environment.h"
#include "bindings/cli/train_output.h"
#include "bindings/cli/train_stop.h"
#include "bindings/cli/train_summary.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/session/training.h"

namespace strata::cli {
namespace {

std::string saving_line(const session::Training& training, int64_t steps) {
  if (steps == 0) {
    return fmt::format(
        "saving   a checkpoint every {} and at the end (--checkpoint-every N: every N steps)\n",
        format_duration(training.checkpoint_every_s()));
  }
  const double predicted_s = training.plan().predicted_step_s * static_cast<double>(steps);
  return fmt::format("saving   a checkpoint every {}, about {} apart, and at the end\n",
                     steps == 1 ? "step" : counted(steps, "step"), format_duration(predicted_s));
}

// Rank 0 prints, and says what becomes of a stop. A signal counts from the beginning.
int train_silently(const config::Options& options, train::Job& job) {
  session::TrainingEvents events;
  events.stop = &handle_stop_signals(false).stop;
  session::Training training(options, cache_directory(), &job);
  training.run(events);
  return 0;
}

// Checks everything and loads the state before --out is created or changed.
int train(const config::Options& options, const config::Json& deepspeed, train::Job* job) {
  session::Training training(options, cache_directory(), job);
  TrainOutput output(options.json);
  output.print(training.data_description() + "\n" + training.plan_text() +
               saving_line(training, options.checkpoint_every));
  const session::Resumed& resumed = training.resumed();
  if (!resumed.path.empty()) {
    output.print("resume   from " + resumed.path +
                 " with the run's options, except for those given now\n");
  }
  Reporter reporter(output, resumed.step + 1, training.steps());
  session::TrainingEvents events;
  events.step = [&](const train::StepMetrics& step) { reporter.step(step); };
  events.evaluated = [&](int64_t step, double loss) { reporter.evaluated(step, loss); };
  events.work = [&](std::string_view what, int64_t done, int64_t total) {
    reporter.work(what, done, total);
  };
  events.trained = [&] { reporter.finish(); };
  if (training.trains()) {
    StopRequest& request = handle_stop_signals();
    events.stop = &request.stop;
    events.phase = &request.phase;
  }
  const double begin_s = now_s();
  const train::TrainResult result = training.run(events);
  const double total_s = now_s() - begin_s;
  const Outcome outcome = {options,
                           deepspeed,
                           training.plan(),
                           result,
                           training.export_notes(),
                           total_s,
                           resuming_command(options),
                           result.tokens > 0 ? training.advise() : train::RunAdvice()};
  output.conclude(train_summary(outcome), train_summary_json(outcome));
  return 0;
}

}  // namespace

int run_train(const config::Options& options, const config::Json& deepspeed) {
  const std::unique_ptr<train::Job> job = job_of_environment(options);
  try {
    if (job && !job->leads()) return train_silently(options, *job);
    return train(options, deepspeed, job.get());
  } catch (const Error& error) {
    if (job) job->abort(error.what());
    if (!job || error.code() != ErrorCode::kPeer) throw;
    // The rank that failed says why, or on each machine the first one says which one is gone.
    if (job->rank() % job->ranks_on_node() == 0) log(LogLevel::kWarning, error.what());
    return kHeardExitCode;
  } catch (const std::exception& error) {
    if (job) job->abort(error.what());
    throw;
  }
}

}  // namespace strata::cli

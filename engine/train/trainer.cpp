// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/threads.h"
#include "engine/comm/group_local.h"
#include "engine/train/executor_options.h"
#include "engine/train/rank_trainer.h"

namespace strata::train {
namespace {

// Rethrows the failure that caused the others. A rank that failed because another one did is not
// the cause.
void rethrow_cause(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr heard;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeer) throw;
      heard = failure;
    }
  }
  if (heard) std::rethrow_exception(heard);
}

}  // namespace

double epochs_at(const config::Options& options, const data::Dataset& data, int64_t step) {
  return static_cast<double>(step) * static_cast<double>(options.step_samples()) /
         static_cast<double>(data.train().sample_count());
}

int64_t planned_steps(const config::Options& options, const data::Dataset& data) {
  if (options.steps > 0) return options.steps;
  const double epochs = options.epochs > 0 ? options.epochs : 1.0;
  const double rows = epochs * static_cast<double>(data.train().sample_count());
  // Rounding may make a product that should be whole slightly larger.
  const double steps = std::ceil(rows / static_cast<double>(options.step_samples()) * (1 - 1e-12));
  constexpr double kMostSteps = 1e12;
  if (steps > kMostSteps) {
    throw Error(ErrorCode::kConfig, fmt::format("epochs: {}: {} steps are more than can be counted "
                                                "(give fewer, or --steps)",
                                                options.epochs, steps));
  }
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

void warn_of_long_step(const config::Options& options, const data::Dataset& data) {
  const double epochs = options.epochs > 0 ? options.epochs : 1.0;
  const int64_t samples = data.train().sample_count();
  const double most = epochs * static_cast<double>(samples);
  if (options.steps > 0 || static_cast<double>(options.step_samples()) <= most) return;
  log(LogLevel::kWarning,
      fmt::format("epochs: {:g}: a step takes {} of data with {}, so the run has one step of "
                  "{:.3g} epochs (lower --accumulate or --micro-batch, or give --steps)",
                  epochs, counted(options.step_samples(), "sample"), samples,
                  epochs_at(options, data, 1)));
}

namespace {

// Runs a rank. A failure ends the other ranks' waits.
void run_rank(const TrainJob& job, int rank, const RankGroups& groups, TrainResult& result) {
  try {
    RankTrainer(job, rank, groups).run(result);
  } catch (const std::exception& error) {
    groups.abort(error.what());
    throw;
  } catch (...) {  // thrown by a caller's function
    groups.abort("a function of the caller failed");
    throw;
  }
}

void log_peak(const config::Options& options) {
  log(LogLevel::kInfo,
      fmt::format(
          "lr: {:.4g} for {} a step is {:.4g} for the {} of this run (use --lr-scaling none "
          "to keep it)",
          options.lr, counted(options.lr_batch, "sample"), options.peak_lr(),
          options.step_samples()));
}

TrainResult train_on_threads(const TrainJob& job) {
  const auto world = static_cast<size_t>(job.options->ranks);
  const comm::GroupOptions limits = group_options(*job.options);
  const exec::LocalMesh lanes(job.plan->input.mesh, limits);
  auto trainer = comm::make_local_groups(static_cast<int>(world), limits);
  std::vector<TrainResult> results(world);
  std::vector<std::exception_ptr> failures(world);
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < world; ++rank) {
    const RankGroups groups = {lanes.of(static_cast<int>(rank)), trainer[rank].get()};
    try {
      ranks.push_back(start_thread([&, rank, groups] {
        try {
          run_rank(job, static_cast<int>(rank), groups, results[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      }));
    } catch (const Error& error) {
      failures[rank] = std::current_exception();
      groups.abort(error.what());
    }
  }
  ranks.clear();  // joins
  rethrow_cause(failures);
  return results[0];
}

}  // namespace

TrainResult train(const TrainJob& job) {
  const bool leads = job.groups.trainer == nullptr || job.groups.trainer->rank() == 0;
  if (leads && job.options->lr_scaling != config::LrScaling::kNone) log_peak(*job.options);
  if (job.options->ranks > 1 && job.groups.trainer == nullptr) return train_on_threads(job);
  TrainResult result;
  run_rank(job, job.groups.trainer == nullptr ? 0 : job.groups.trainer->rank(), job.groups, result);
  return result;
}

}  // namespace strata::train

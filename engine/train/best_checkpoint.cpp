// SPDX-License-Identifier: Apache-2.0
#include "engine/train/best_checkpoint.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_link.h"
#include "engine/config/json.h"
#include "engine/model_files/file.h"
#include "engine/text/text_files.h"
#include "engine/train/run_directory.h"

namespace strata::train {

bool HeldOutLosses::add(int64_t step, double loss) {
  last_step = step;
  if (!(loss < best_loss)) {
    ++since_best;
    return false;
  }
  best_step = step;
  best_loss = loss;
  since_best = 0;
  return true;
}

std::vector<HeldOutLoss> read_held_out_losses(const std::string& metrics, int64_t last_step) {
  std::vector<HeldOutLoss> losses;
  if (!model::is_there(metrics)) return losses;
  text::LineReader lines(metrics, [](int64_t, int64_t) {});
  while (lines.next() && lines.has_end()) {
    if (lines.text().find("\"eval_loss\"") == std::string_view::npos) continue;
    const config::Json record = config::Json::parse(lines.text(), metrics);
    const config::Json* step = record.find("step");
    const config::Json* loss = record.find("eval_loss");
    if (step == nullptr || loss == nullptr || step->int64().value_or(0) > last_step) continue;
    losses.push_back({step->int64().value_or(0), loss->number().value_or(NAN)});
  }
  return losses;
}

bool lacks_evaluation(const config::Options& options, int64_t steps, int64_t resumed_step,
                      bool is_own) {
  if (!is_own || options.eval_every == 0 || resumed_step != steps) return false;
  const auto losses = read_held_out_losses(options.out + "/" + kMetricsFile, steps);
  return losses.empty() || losses.back().step < steps;
}

std::string best_link(const std::string& run) {
  return run + "/best";
}

void require_place_for_best(const std::string& run) {
  const std::string link = best_link(run);
  std::error_code ignored;
  if (std::filesystem::is_symlink(link, ignored) || !model::is_there(link)) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("best: {} is no link to a checkpoint, and the best one takes this name "
                          "(move it away, or leave out --keep-best)",
                          link));
}

void BestCheckpoint::begin(int64_t last_step) {
  const std::vector<HeldOutLoss> evaluated =
      read_held_out_losses(run_ + "/" + kMetricsFile, last_step);
  for (const HeldOutLoss& one : evaluated) losses_.add(one.step, one.loss);
  const std::string link = best_link(run_);
  checkpoint::remove_dangling(link);
  if (!options_.keeps) return;
  const std::string checkpoints = run_ + "/" + kCheckpointsFolder;
  const std::string best = checkpoint::checkpoint_path(checkpoints, losses_.best_step);
  if (losses_.best_step > 0 && model::is_there(best + "/manifest.json") &&
      checkpoint::linked_step(link) != losses_.best_step) {
    checkpoint::link_checkpoint(link, checkpoints, losses_.best_step);
  }
  kept_step_ = checkpoint::linked_step(link);
  if (kept_step_) kept_loss_ = NAN;
  for (const HeldOutLoss& one : evaluated) {
    if (one.step == kept_step_) kept_loss_ = one.loss;
  }
  if (!kept_step_ || !std::isnan(kept_loss_)) return;
  log(LogLevel::kWarning,
      fmt::format(
          "best: {} is of step {}, whose held-out loss {} does not have: no later one takes "
          "its place (remove {} to choose among the evaluations to come)",
          link, *kept_step_, kMetricsFile, link));
}

bool BestCheckpoint::add(int64_t step, double loss) {
  losses_.add(step, loss);
  if (step == kept_step_) kept_loss_ = loss;  // which metrics.jsonl may have lost
  if (!options_.keeps || !(loss < kept_loss_)) return false;
  kept_loss_ = loss;
  return true;
}

void BestCheckpoint::keep(int64_t step) {
  checkpoint::link_checkpoint(best_link(run_), run_ + "/" + kCheckpointsFolder, step);
  kept_step_ = step;
}

bool BestCheckpoint::out_of_patience() const {
  return options_.patience > 0 && losses_.since_best >= options_.patience;
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#include "engine/train/checkpoint_session.h"

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_writer.h"

namespace strata::train {
namespace {

void wait_for_ranks(comm::Group* group) {
  if (group) group->barrier();
}

}  // namespace

CheckpointSession::CheckpointSession(std::string directory, const RunPlan& plan, int64_t keep,
                                     std::string run, config::Json trainer)
    : directory_(std::move(directory)),
      plan_(plan),
      keep_(keep),
      run_(std::move(run)),
      trainer_(std::move(trainer)),
      files_(plan.ranks.size()) {}

CheckpointSession::Opened CheckpointSession::open(const std::string& path,
                                                  exec::StateSource& frozen) const {
  auto reader =
      std::make_unique<checkpoint::CheckpointReader>(path, *plan_.spec, plan_.input.recipe, frozen);
  const checkpoint::CheckpointManifest& manifest = reader->manifest();
  const int64_t step = manifest.step;
  const std::optional<int64_t> updates = manifest.updates;
  return {std::move(reader), step, updates};
}

void CheckpointSession::save(int64_t step, int rank, comm::Group* group,
                             const std::function<int64_t(exec::StateSink&)>& stream) {
  if (rank == 0) {
    commit_ = std::make_unique<checkpoint::CheckpointCommit>(
        directory_, step, checkpoint::checkpoint_bytes(*plan_.spec));
  }
  wait_for_ranks(group);
  const plan::Plan& plan = plan_.ranks[static_cast<size_t>(rank)];
  checkpoint::CheckpointWriter writer(*plan_.spec, plan.layout,
                                      {.partial = commit_->partial(),
                                       .nonce = commit_->nonce(),
                                       .mesh = plan.mesh,
                                       .recipe = plan.recipe});
  const int64_t updates = stream(writer);
  files_[static_cast<size_t>(rank)] = writer.close();
  wait_for_ranks(group);
  if (rank == 0) {
    state_hash_ = 0;
    for (const checkpoint::StateFile& file : files_) state_hash_ += file.state_hash;
    last_path_ = commit_->commit({.spec = plan_.spec.get(),
                                  .recipe = plan.recipe,
                                  .mesh = plan.mesh,
                                  .updates = updates,
                                  .run = run_,
                                  .trainer = trainer_,
                                  .files = files_});
    commit_.reset();
    checkpoint::keep_last(directory_, keep_);
  }
  wait_for_ranks(group);
}

}  // namespace strata::train

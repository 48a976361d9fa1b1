// SPDX-License-Identifier: Apache-2.0
#include "engine/train/checkpoint_session.h"

#include <fmt/format.h>

#include <exception>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_link.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/comm/text_exchange.h"

namespace strata::train {

CheckpointSession::CheckpointSession(const model::ModelSpec& spec, const model::ModelSpec& slice,
                                     const plan::Plan& plan, comm::Group* group, Run run)
    : spec_(spec), slice_(slice), plan_(plan), group_(group), run_(std::move(run)) {}

std::unique_ptr<checkpoint::CheckpointReader> CheckpointSession::open(
    const std::string& path, exec::StateSource& frozen) const {
  return std::make_unique<checkpoint::CheckpointReader>(path, spec_, plan_.recipe, frozen, &slice_);
}

void CheckpointSession::save(int64_t step,
                             const std::function<exec::UpdateHistory(exec::StateSink&)>& stream) {
  std::optional<checkpoint::CheckpointCommit> commit;
  std::exception_ptr refusal;  // other ranks would wait for rank 0
  if (leads()) {
    const model::ModelSpec& spec = slice_.stage.route.ranks > 1 ? spec_ : slice_;
    try {
      commit.emplace(run_.directory, step, checkpoint::checkpoint_bytes(spec, plan_.recipe));
    } catch (...) {
      if (group_ == nullptr) throw;
      refusal = std::current_exception();
    }
  }
  const std::string partial = comm::broadcast_text(group_, commit ? commit->partial() : "");
  if (refusal) std::rethrow_exception(refusal);
  if (partial.empty()) {
    throw Error(ErrorCode::kPeer, "checkpoint: rank 0 cannot begin it (see that rank's own error)");
  }
  uint64_t nonce = commit ? commit->nonce() : 0;
  if (group_ != nullptr) group_->broadcast(&nonce, sizeof(nonce), 0);
  checkpoint::CheckpointWriter writer(
      slice_, plan_.layout,
      {.partial = partial, .nonce = nonce, .mesh = plan_.mesh, .recipe = plan_.recipe});
  const exec::UpdateHistory history = stream(writer);
  const auto tables = comm::gather_texts(group_, checkpoint::to_text(writer.close()));
  if (commit) {
    checkpoint::CheckpointContents contents = {.spec = &spec_,
                                               .recipe = plan_.recipe,
                                               .mesh = plan_.mesh,
                                               .history = history,
                                               .run = run_.nonce,
                                               .trainer = run_.trainer,
                                               .files = {}};
    state_hash_ = 0;
    for (const std::string& table : tables) {
      contents.files.push_back(checkpoint::parse_state_file(table));
      state_hash_ += contents.files.back().state_hash;
    }
    last_path_ = commit->commit(contents);
    rotate();
  }
  if (group_ != nullptr) group_->barrier();
}

// The new checkpoint is there, so a run does not end for an older one that cannot be removed.
void CheckpointSession::rotate() const {
  try {
    checkpoint::keep_last(run_.directory, run_.keep, checkpoint::linked_step(run_.also));
  } catch (const Error& error) {
    log(LogLevel::kWarning, fmt::format("checkpoints: {}: an older one stays: {} (remove it)",
                                        run_.directory, error.what()));
  }
}

}  // namespace strata::train

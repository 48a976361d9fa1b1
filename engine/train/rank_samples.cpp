// SPDX-License-Identifier: Apache-2.0
// Texts that a run continues at its evaluations.
#include "engine/base/check.h"
#include "engine/train/rank_trainer.h"
#include "engine/train/sample_texts.h"

namespace strata::train {

// Continues the prompts of --sample-prompts; empty without them and on other ranks than 0, nullopt
// when the run is asked to stop. All ranks run rank 0's passes, because its logits decide.
std::optional<std::vector<std::vector<int32_t>>> RankTrainer::sample() {
  if (!options_.continues_samples()) return std::vector<std::vector<int32_t>>();
  STRATA_CHECK(!leads() || job_.samples != nullptr);
  const int64_t vocabulary = job_.plan->spec->architecture.vocabulary;
  const SamplePrompts none;
  SampleTexts texts(leads() ? *job_.samples : none, plan_.shape, vocabulary);
  exec::Instance pass;
  size_pass(plan_.shape, vocabulary, pass);
  while (any_rank(texts.prepare(pass))) {
    if (must_stop()) return std::nullopt;
    if (groups_.trainer) {
      for (std::vector<int32_t>* input : {&pass.tokens, &pass.logit_position}) {
        groups_.trainer->broadcast(input->data(), std::ssize(*input) * int64_t{sizeof(int32_t)}, 0);
      }
    }
    executor_->run(pass);
    bring_logits(pass);
    if (leads()) texts.take(pass);
  }
  return texts.new_ids();
}

// The last stage of a pipeline has them.
void RankTrainer::bring_logits(exec::Instance& pass) const {
  const plan::Mesh& mesh = plan_.mesh;
  if (mesh.pipeline == 1) return;
  groups_.trainer->broadcast(pass.logits.data(), std::ssize(pass.logits) * int64_t{sizeof(float)},
                             mesh.world - mesh.stage_ranks());
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/data/data.h"
#include "engine/exec/executor.h"
#include "engine/model_files/model_directory.h"
#include "engine/train/run_plan.h"
#include "engine/train/work_progress.h"

namespace strata::train {

// A copy of a model's spec with everything frozen, so that a plan has only weights and no optimizer
// state.
model::ModelSpec frozen_spec(const model::ModelSpec& spec);

// Prepares `instance` to compute the logits of the token that follows `context`, which must not be
// empty; only its last T tokens are used.
void fill_context(const plan::Plan& plan, std::span<const int32_t> context, int64_t vocabulary,
                  exec::Instance& instance);

// Runs forward passes of a model on an executor, within the same budgets and tiers as training.
//
// Threads: one. Failure: Error. The plan must have been made with RunPlan's `inference`, for one
// rank; plan and directory must outlive this.
class Inference {
 public:
  // `checkpoint`: a checkpoint of this model whose weights replace the directory's; may be empty.
  Inference(const RunPlan& plan, const config::Options& options, const model::ModelDirectory& model,
            const std::string& checkpoint, const WorkProgress& progress);

  struct Loss {
    double mean = 0;  // nats a token
    int64_t tokens = 0;
  };
  Loss evaluate(const data::TokenSource& samples, const WorkProgress& progress);

  // One pass over new tokens of texts, of a plan with a cache of keys and values. Tokens of one row
  // are adjacent, and follow those that the row has; position 0 begins another text there.
  struct Pass {
    std::vector<int32_t> tokens, rows, positions;
    std::vector<int32_t> wanted;  // the tokens after which logits are wanted, at most one of a row
  };
  void run(const Pass& pass);
  // Those of the last pass: [wanted, vocabulary()].
  const std::vector<float>& logits() const { return generate_.logits; }
  int64_t vocabulary() const { return plan_.spec->architecture.vocabulary; }

 private:
  const RunPlan& plan_;
  const config::Options& options_;
  std::unique_ptr<exec::StateSource> source_;
  std::unique_ptr<exec::StateSource> frozen_;
  std::unique_ptr<exec::Executor> executor_;
  exec::Instance generate_;
};

}  // namespace strata::train

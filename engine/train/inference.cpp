// SPDX-License-Identifier: Apache-2.0
#include "engine/train/inference.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/frozen_source.h"
#include "engine/checkpoint/model_source.h"
#include "engine/data/batch.h"
#include "engine/train/executor_options.h"
#include "engine/train/resume_check.h"

namespace strata::train {
namespace {

// Reads weights of a checkpoint for a spec with everything frozen, in which parameters have the
// same names but other offsets.
class CheckpointWeights : public exec::StateSource {
 public:
  CheckpointWeights(const std::string& path, const model::ModelDirectory& model, Recipe recipe,
                    const model::ModelSpec& frozen)
      : trained_(spec_of_checkpoint(checkpoint::read_manifest(path), model, path)),
        frozen_(frozen),
        from_model_(model, frozen),
        reader_(path, trained_, recipe, from_model_) {}

  void expect(std::span<const exec::ChunkState> next) override {
    std::vector<exec::ChunkState> of_model;
    std::ranges::copy_if(next, std::back_inserter(of_model),
                         [&](const exec::ChunkState& chunk) { return needs_model(chunk); });
    if (!of_model.empty()) from_model_.expect(of_model);
  }
  void read(const exec::ChunkState& chunk) override {
    if (needs_model(chunk))
      from_model_.read(chunk);
    else  // for the padding
      std::memset(chunk.hi_at(chunk.hi_first), 0,
                  static_cast<size_t>(chunk.hi_bytes(chunk.hi_count)));
    for (const model::Parameter& to : frozen_.segments[chunk.segment].parameters) {
      const int64_t first = std::max(to.offset, chunk.hi_first);
      const int64_t last = std::min(to.offset + to.numel, chunk.hi_first + chunk.hi_count);
      const model::Parameter* from = trained(chunk.segment, to.name);
      if (first >= last || from == nullptr) continue;
      reader_.read_plane(chunk.segment, Plane::kHi, from->offset + first - to.offset, last - first,
                         chunk.hi_at(first));
    }
  }

 private:
  // Whether the chunk has some of a parameter that was not trained.
  bool needs_model(const exec::ChunkState& chunk) const {
    const auto& parameters = frozen_.segments[chunk.segment].parameters;
    return std::ranges::any_of(parameters, [&](const model::Parameter& one) {
      return one.offset < chunk.hi_first + chunk.hi_count &&
             one.offset + one.numel > chunk.hi_first && trained(chunk.segment, one.name) == nullptr;
    });
  }
  const model::Parameter* trained(int segment, const std::string& name) const {
    for (const model::Parameter& parameter : trained_.segments[segment].parameters) {
      if (parameter.name == name && !parameter.frozen) return &parameter;
    }
    return nullptr;
  }

  const model::ModelSpec trained_;
  const model::ModelSpec& frozen_;
  checkpoint::ModelSource from_model_;
  checkpoint::CheckpointReader reader_;
};

}  // namespace

model::ModelSpec frozen_spec(const model::ModelSpec& spec) {
  model::ModelSpec frozen = spec;
  for (model::Segment& segment : frozen.segments) {
    for (model::Parameter& parameter : segment.parameters) parameter.frozen = true;
  }
  model::assign_offsets(frozen, 1);
  return frozen;
}

Inference::Inference(const RunPlan& plan, const config::Options& options,
                     const model::ModelDirectory& model, const std::string& checkpoint,
                     const WorkProgress& progress)
    : plan_(plan), options_(options) {
  if (checkpoint.empty()) {
    source_ = std::make_unique<checkpoint::ModelSource>(model, *plan.spec);
  } else {
    source_ = std::make_unique<CheckpointWeights>(checkpoint, model, options.recipe, *plan.spec);
  }
  const std::string& files = checkpoint.empty() ? model.path() : checkpoint;
  frozen_ = std::make_unique<checkpoint::FrozenSource>(*source_, *plan.spec, files);
  exec::ExecutorOptions executor = executor_options(options, plan, 0, {});
  executor.frozen = frozen_.get();
  executor_ = std::make_unique<exec::Executor>(plan.ranks.front(), *plan.spec, executor);
  ReportedSource source(*source_, plan.ranks.front(), progress);
  exec::Instance load;
  load.program = plan::ProgramName::kLoad;
  load.source = &source;
  executor_->run(load);
}

Inference::Loss Inference::evaluate(const data::TokenSource& samples,
                                    const WorkProgress& progress) {
  const plan::Plan& plan = plan_.ranks.front();
  const data::Batches batches(samples, {.rows = plan.shape.rows,
                                        .accumulate = plan.eval_micro_batches,
                                        .shuffle = false,
                                        .repeat = false});
  Loss loss;
  for (int64_t step = 0; step < batches.steps_per_epoch(); ++step) {
    exec::Instance instance;
    instance.program = plan::ProgramName::kEval;
    fill_instance(batches, plan, step, instance);
    executor_->run(instance);
    for (double sum : instance.loss_sums) loss.mean += sum;
    loss.tokens += batches.target_count(step);
    if (progress) progress("evaluating", step + 1, batches.steps_per_epoch());
  }
  if (loss.tokens == 0) {
    throw Error(ErrorCode::kConfig,
                "evaluate: the data: no token is a target (give records with completions)");
  }
  loss.mean /= static_cast<double>(loss.tokens);
  return loss;
}

void fill_context(const plan::Plan& plan, std::span<const int32_t> context, int64_t vocabulary,
                  exec::Instance& instance) {
  STRATA_CHECK(!context.empty());
  const auto length = static_cast<size_t>(plan.shape.length);
  const size_t used = std::min(context.size(), length);
  instance.program = plan::ProgramName::kGenerate;
  instance.tokens.assign(static_cast<size_t>(plan.shape.tokens()), 0);
  std::copy(context.end() - static_cast<int64_t>(used), context.end(), instance.tokens.begin());
  instance.logit_position.assign(static_cast<size_t>(plan.shape.rows),
                                 static_cast<int32_t>(used) - 1);
  instance.logits.resize(static_cast<size_t>(plan.shape.rows) * static_cast<size_t>(vocabulary));
}

void Inference::run(const Pass& pass) {
  const model::BatchShape& shape = plan_.ranks.front().shape;
  STRATA_CHECK(shape.is_cached() && std::ssize(pass.tokens) <= shape.length &&
               std::ssize(pass.wanted) <= shape.cache_rows);
  generate_.program = plan::ProgramName::kGenerate;
  generate_.token_count = std::ssize(pass.tokens);
  generate_.logit_count = std::ssize(pass.wanted);
  generate_.tokens.clear();
  for (const std::vector<int32_t>* part : {&pass.tokens, &pass.rows, &pass.positions}) {
    STRATA_CHECK(part->size() == pass.tokens.size());
    generate_.tokens.insert(generate_.tokens.end(), part->begin(), part->end());
  }
  generate_.tokens.resize(static_cast<size_t>(model::token_bytes(shape)) / sizeof(int32_t));
  generate_.logit_position = pass.wanted;
  generate_.logit_position.resize(static_cast<size_t>(shape.cache_rows));
  generate_.logits.resize(static_cast<size_t>(shape.cache_rows * vocabulary()));
  executor_->run(generate_);
}

}  // namespace strata::train

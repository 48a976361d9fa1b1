// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/checkpoint/frozen_source.h"
#include "engine/checkpoint/model_source.h"
#include "engine/exec/executor.h"
#include "engine/plan/builder.h"
#include "engine/plan/planner.h"
#include "tests/exec/segment_compute_reference.h"
#include "tests/support/temporary_directory.h"

// The steps of a reference, made by the engine: load, steps, drain and checkpoint of a plan.
namespace strata::train {

// f32 beside PyTorch's float64, over the few steps of a reference.
inline constexpr double kLossTolerance = 2e-5;
inline constexpr double kNormTolerance = 5e-4;

// Masters by segment, as a checkpoint gets them; 0 where nothing is trained.
class Masters : public exec::StateSink {
 public:
  explicit Masters(const model::ModelSpec& spec) {
    for (const model::Segment& segment : spec.segments) {
      values_.emplace_back(static_cast<size_t>(segment.numel()));
    }
  }

  void write(const exec::ChunkState& chunk) override {
    for (int64_t i = 0; i < chunk.state_count; ++i) {
      const int64_t element = chunk.state_first + i;
      values_[static_cast<size_t>(chunk.segment)][static_cast<size_t>(element)] =
          chunk.master_at(element);
    }
  }

  std::vector<float> of(size_t segment, const model::Parameter& parameter) const {
    const auto first = values_[segment].begin() + parameter.offset;
    return {first, first + parameter.numel};
  }
  const std::vector<std::vector<float>>& values() const { return values_; }

 private:
  std::vector<std::vector<float>> values_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  Masters masters;
  int64_t nvme_bytes = 0;
};

class ReferenceRun {
 public:
  explicit ReferenceRun(const std::string& name)
      : reference_(name),
        model_(model::ModelDirectory::open(exec::case_path(name))),
        spec_(model_.spec()) {
    model::assign_offsets(spec_, 1);
  }

  const exec::Reference& reference() const { return reference_; }
  const model::ModelDirectory& model() const { return model_; }
  model::ModelSpec& spec() { return spec_; }  // groups may be applied before it is trained

  // All state in memory, or no more of it than must be.
  Trained train(Recipe recipe, bool offloaded) const {
    plan::PlanInput input;
    input.spec = &spec_;
    input.recipe = recipe;
    input.shape = reference_.shape();
    input.micro_batches = static_cast<int>(reference_.integer("accumulate"));
    input.nvme_budget = int64_t{1} << 40;
    input.frozen_in_source = offloaded;
    plan::Placement placement = plan::smallest_placement(input);
    if (!offloaded) {
      for (auto* flags : {&placement.hi_in_host, &placement.state_in_host, &placement.grad_in_host,
                          &placement.checkpoint_in_host})
        std::fill(flags->begin(), flags->end(), 1);
    }
    return train(plan::build_plan(input, placement));
  }

 private:
  Trained train(const plan::Plan& plan) const {
    checkpoint::ModelSource source(model_, spec_);
    checkpoint::FrozenSource frozen(source, spec_, model_.path());
    exec::ExecutorOptions options;
    options.backend = &kernels::cpu_backend();
    options.volume.directories = {scratch_.path()};
    options.volume.allow_memory_filesystem = true;
    options.io_backend = io::Backend::kThreads;
    options.frozen = &frozen;
    exec::Executor executor(plan, spec_, options);
    Trained result = {{}, {}, Masters(spec_)};
    exec::Instance load;
    load.program = plan::ProgramName::kLoad;
    load.source = &source;
    executor.run(load);
    for (int64_t step = 1; step <= reference_.integer("steps"); ++step) {
      exec::Instance instance;
      fill(step, instance);
      executor.run(instance);
      double sum = 0;
      for (const double part : instance.loss_sums) sum += part;
      result.losses.push_back(sum / static_cast<double>(instance.target_count));
      result.norms.push_back(instance.grad_norm);
    }
    exec::Instance drain;
    drain.program = plan::ProgramName::kDrain;
    executor.run(drain);
    exec::Instance save;
    save.program = plan::ProgramName::kCheckpoint;
    save.sink = &result.masters;
    executor.run(save);
    result.nvme_bytes = executor.io_totals().bytes_read;
    return result;
  }

  void fill(int64_t step, exec::Instance& instance) const {
    const exec::ReferenceSettings settings = reference_.settings();
    instance.settings = {.lr = settings.adamw.lr,
                         .beta1 = settings.adamw.beta1,
                         .beta2 = settings.adamw.beta2,
                         .eps = settings.adamw.eps,
                         .weight_decay = settings.adamw.weight_decay,
                         .clip = settings.clip};
    instance.target_count = 0;
    for (const auto& row : reference_.batch("tokens", step - 1)) {
      instance.tokens.insert(instance.tokens.end(), row.begin(), row.end());
    }
    for (const auto& row : reference_.batch("targets", step - 1)) {
      instance.targets.insert(instance.targets.end(), row.begin(), row.end());
      for (const int32_t target : row) instance.target_count += target >= 0;
    }
  }

  const exec::Reference reference_;
  const model::ModelDirectory model_;
  model::ModelSpec spec_;
  const test::TemporaryDirectory scratch_;
};

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// The rate of a run's own model on a device: within --device-memory, for the parameters that the
// options train, and 0 where the planner has something to say.
#include "engine/session/model_rate.h"

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/train/plan_elsewhere.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/support/small_model.h"

namespace strata::session {
namespace {

class ModelRate : public testing::Test {
 protected:
  ModelRate() {
    options_.device = config::Device::kEmulated;
    options_.ranks = 1;
    options_.micro_batch = 2;
    options_.sequence_length = 16;
    options_.device_memory = 64 * kMiB;
  }
  double rate() {
    const auto device = kernels::make_emulated_device(kernels::cpu_backend(), {.threads = 1});
    return rate_of_model(spec_, options_, facts_, *device);
  }

  const model::ModelSpec spec_ = model::build_spec(test::small_llama());
  config::Options options_;
  train::RunFacts facts_;
};

TEST_F(ModelRate, IsMeasuredForEveryWayToTrain) {
  for (const config::Activations activations :
       {config::Activations::kAuto, config::Activations::kKeep, config::Activations::kRecompute}) {
    options_.activations = activations;
    EXPECT_GT(rate(), 1e5);
  }
  options_.freeze = "model[.]layers[.]1[.].*|model[.]embed_tokens.*";
  EXPECT_GT(rate(), 1e5);
}

TEST_F(ModelRate, StaysWithinTheDeviceMemoryOfTheRun) {
  options_.device_memory = 64 * kKiB;
  EXPECT_EQ(rate(), 0);
}

TEST_F(ModelRate, LeavesMistakesToThePlanner) {
  options_.freeze = "there is no such parameter";
  EXPECT_EQ(rate(), 0);
}

TEST_F(ModelRate, IsMeasuredOnGpusWhoseRanksHaveWholeBlocks) {
  measure_model(spec_, options_, facts_);
  EXPECT_EQ(facts_.compute_flops_per_s, 0) << "an emulated device";
  options_.device = config::Device::kCuda;
  options_.ranks = options_.tensor_ranks = 2;
  measure_model(spec_, options_, facts_);
  EXPECT_EQ(facts_.compute_flops_per_s, 0) << "tensor ranks";
}

// A plan for another machine does not take the rate of this one.
TEST_F(ModelRate, IsOfThisMachine) {
  facts_.compute_flops_per_s = 1e12;
  config::Machine there;
  there.name = "there";
  options_.device = config::Device::kCpu;
  options_.device_memory = 0;
  train::plan_elsewhere(there, options_, facts_);
  EXPECT_EQ(facts_.compute_flops_per_s, 0);
}

}  // namespace
}  // namespace strata::session

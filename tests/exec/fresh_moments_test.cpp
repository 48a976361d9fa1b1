// SPDX-License-Identifier: Apache-2.0
// A source is told which moments are zero already: those in arenas that nothing has used yet, and
// no others.
#include "engine/exec/fresh_moments.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/small_model.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

// Leaves moments that are not zero, so that a place that is used twice is seen.
class DirtySource : public exec::StateSource {
 public:
  explicit DirtySource(const model::ModelSpec& spec) : masters_(spec, test::kSeed) {}

  void read(const exec::ChunkState& chunk) override {
    const auto zero = [&](const float* values) {
      return std::all_of(values, values + chunk.state_count, [](float v) { return v == 0.0f; });
    };
    ++chunks;
    told += chunk.zero_moments ? 1 : 0;
    right += chunk.zero_moments && zero(chunk.exp_avg) && zero(chunk.exp_avg_sq) ? 1 : 0;
    masters_.read(chunk);
    std::fill_n(chunk.exp_avg, chunk.state_count, 1.0f);
    std::fill_n(chunk.exp_avg_sq, chunk.state_count, 1.0f);
  }

  int chunks = 0, told = 0, right = 0;

 private:
  test::RandomSource masters_;
};

class FreshMoments : public ::testing::Test {
 protected:
  FreshMoments() {
    spec_ = model::build_spec(test::small_llama());
    model::assign_offsets(spec_, 1);
    input_.spec = &spec_;
    input_.shape = {1, 8};
    input_.nvme_budget = plan::kNoLimit;
  }

  // The second load finds what the first one left.
  std::vector<DirtySource> load_twice(const plan::Placement& placement) {
    const plan::Plan plan = plan::build_plan(input_, placement);
    exec::ExecutorOptions options;
    options.backend = &kernels::ref_backend();
    options.volume.directories = {directory_.path()};
    options.volume.allow_memory_filesystem = true;
    options.deadline_s = 60;
    exec::Executor executor(plan, spec_, options);
    std::vector<DirtySource> sources(2, DirtySource(spec_));
    for (DirtySource& source : sources) {
      exec::Instance load;
      load.program = plan::ProgramName::kLoad;
      load.source = &source;
      executor.run(load);
    }
    return sources;
  }

  const test::TemporaryDirectory directory_;
  model::ModelSpec spec_;
  plan::PlanInput input_;
};

TEST_F(FreshMoments, AreAllOfAStateThatStaysInMemory) {
  plan::Placement placement = plan::smallest_placement(input_);
  for (auto* stays : {&placement.hi_in_host, &placement.state_in_host, &placement.grad_in_host,
                      &placement.checkpoint_in_host}) {
    std::fill(stays->begin(), stays->end(), 1);
  }
  const auto sources = load_twice(placement);
  EXPECT_GT(sources[0].chunks, 5);
  EXPECT_EQ(sources[0].told, sources[0].chunks);
  EXPECT_EQ(sources[0].right, sources[0].told);
  EXPECT_EQ(sources[1].told, 0);
}

TEST_F(FreshMoments, AreNotThoseThatPassThroughASlotToTheDrive) {
  const auto sources = load_twice(plan::smallest_placement(input_));
  EXPECT_GT(sources[0].chunks, 5);
  EXPECT_LT(sources[0].told, sources[0].chunks);
  EXPECT_EQ(sources[0].right, sources[0].told);
  EXPECT_EQ(sources[1].told, 0);
}

}  // namespace
}  // namespace strata

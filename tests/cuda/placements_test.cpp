// SPDX-License-Identifier: Apache-2.0
// Training through the CUDA device's own host code, over a fake device: where state lives, and when
// commands run, changes no bit; losses are those of the plain loops; steps allocate nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/exec/devices.h"
#include "tests/cuda/fake_gpu.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class CudaPlacements : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
    options_.make_device = test::FakeGpu::make;
  }

  static plan::PlanInput on_gpu(plan::PlanInput input) {
    input.device = exec::describe(config::DeviceKind::kCuda, input.recipe, 1);
    return input;
  }
  // All state on the device.
  static plan::Placement resident(test::Draw& draw, const plan::PlanInput& input) {
    plan::Placement placement = test::all_in_memory(input);
    test::make_homes(4, draw, input, placement);
    return placement;
  }
  test::RunResult run(const plan::PlanInput& input, const plan::Placement& placement,
                      const std::string& settings) {
    test::FakeGpu::configure("pageable=0 " + settings);
    return test::small_run(input, placement, options_);
  }

  // With little memory and with state anywhere, with commands that run late, and resumed.
  void expect_bits_anywhere(test::Draw& draw, const plan::PlanInput& input,
                            const test::RunResult& expected, const std::string& settings) {
    for (int trial = 0; trial < 3; ++trial) {
      options_.overlaps = draw.coin();
      options_.resume_after = trial == 2 ? 2 : 0;
      const plan::Placement placement =
          trial == 0 ? plan::smallest_placement(input) : test::random_placement(draw, input);
      const test::RunResult result =
          run(input, placement, settings + "delay_us=300 seed=" + std::to_string(trial));
      EXPECT_TRUE(result == expected) << "trial " << trial;
      EXPECT_EQ(result.bytes_read, result.bytes_verified);
    }
    options_.overlaps = false;
    options_.resume_after = 0;
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

void expect_close(const test::RunResult& gpu, const test::RunResult& plain, Recipe recipe) {
  const double tolerance = recipe == Recipe::kFp32 ? 1e-4 : 2e-2;
  ASSERT_EQ(gpu.losses.size(), plain.losses.size());
  for (size_t i = 0; i < gpu.losses.size(); ++i) {
    const bool are_beyond_f16 = std::isnan(plain.losses[i]) && std::isnan(gpu.losses[i]);
    if (recipe == Recipe::kFp16 && are_beyond_f16) continue;
    EXPECT_NEAR(gpu.losses[i], plain.losses[i], tolerance * plain.losses[i]) << "step " << i + 1;
  }
}

TEST_F(CudaPlacements, ChangeNoBit) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, seed % 2 == 0);
    plan::PlanInput plain = test::random_input(draw, spec, 1);
    plain.device.discrete = false;
    const plan::PlanInput input = on_gpu(plain);
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    const test::RunResult expected = run(input, resident(draw, input), "");
    EXPECT_EQ(expected.bytes_read, 0);
    expect_close(expected, test::small_run(plain, test::all_in_memory(plain), options_),
                 input.recipe);
    expect_bits_anywhere(draw, input, expected, "");
  }
}

// All is in host memory: kernels read what a drive wrote there, and the host updates after them.
TEST_F(CudaPlacements, AGpuInTheHostsMemoryHasTheSameBits) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(800 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, seed % 2 == 0);
    plan::PlanInput input = on_gpu(test::random_input(draw, spec, 1));
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.make_device = test::FakeGpu::make;
    const test::RunResult expected = run(input, resident(draw, input), "");
    options_.make_device = test::FakeGpu::make_unified;
    input.device = exec::describe(config::DeviceKind::kUnified, input.recipe, 1);
    expect_bits_anywhere(draw, input, expected, "unified=1 ");
  }
}

TEST_F(CudaPlacements, AGpuWithMemoryOfItsOwnIsNotTakenForOneWithout) {
  test::FakeGpu::configure("unified=0");
  try {
    (void)test::FakeGpu::make_unified(DType::kF32);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("use --device cuda"), std::string::npos);
  }
}

// They add what is f32, whatever the type of interiors; norms over all heads add sums of rows.
TEST_F(CudaPlacements, TensorRanksOfEachFamilyHaveTheLossesOfOneRank) {
  test::FakeGpu::configure("pageable=0 devices=2");
  options_.steps = 3;
  uint64_t seed = 700;
  for (const model::Family& family : model::families()) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp16}) {
      SCOPED_TRACE(std::string(family.model_type) + ", " + std::string(name_of(recipe)));
      test::Draw draw(++seed);
      const model::ModelSpec whole =
          test::random_spec_of(draw, test::sliceable_architecture_of(draw, family, 2), 1, true);
      plan::PlanInput plain = test::random_input(draw, whole, 1);
      plain.recipe = recipe;
      plain.device.discrete = false;
      plan::PlanInput input = on_gpu(plain);
      input.mesh.tensor = input.mesh.world = 2;
      model::ModelSpec slice = model::tensor_slice(whole, {0, 2});
      model::assign_offsets(slice, input.mesh.shards());
      plan::PlanInput of_slice = input;
      of_slice.spec = &slice;
      const plan::Placement placement = test::random_placement(draw, of_slice);
      expect_close(test::small_run_on_ranks(input, {placement}, options_),
                   test::small_run(plain, test::all_in_memory(plain), options_), recipe);
    }
  }
}

TEST_F(CudaPlacements, ProfilersSeeEachOpWithItsSegment) {
  test::Draw draw(3);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  const plan::PlanInput input = on_gpu(test::random_input(draw, spec, 1));
  options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
  (void)run(input, resident(draw, input), "");
  const auto ranges = [](const std::string& name) {
    return test::FakeGpu::calls(("range " + name).c_str());
  };
  const int64_t passes = options_.steps * input.micro_batches;
  for (const model::Segment& segment : spec.segments) {
    const bool is_head = segment.kind == model::SegmentKind::kHead;
    EXPECT_GE(ranges((is_head ? "loss " : "backward ") + segment.name), passes) << segment.name;
  }
  EXPECT_EQ(ranges("backward"), 0);
  EXPECT_GT(ranges("end"), passes * static_cast<int64_t>(spec.segments.size()));
}

TEST_F(CudaPlacements, AStepAllocatesNothingAndWaitsForNoDevice) {
  test::Draw draw(3);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  plan::PlanInput input = on_gpu(test::random_input(draw, spec, 1));
  const plan::Placement placement = plan::smallest_placement(input);
  constexpr const char* kCalls[] = {"cudaMalloc",
                                    "cudaFree",
                                    "cudaMemset",
                                    "cudaHostRegister",
                                    "cudaDeviceSynchronize",
                                    "cudaStreamSynchronize",
                                    "cudaStreamCreateWithPriority",
                                    "cudaEventCreateWithFlags"};
  std::vector<int64_t> counts;
  for (const int steps : {1, 4}) {
    options_.steps = steps;
    (void)run(input, placement, "");
    for (const char* call : kCalls) counts.push_back(test::FakeGpu::calls(call));
  }
  for (size_t i = 0; i < std::size(kCalls); ++i) {
    EXPECT_GT(counts[i], 0) << kCalls[i];
    EXPECT_EQ(counts[i], counts[i + std::size(kCalls)]) << kCalls[i];
  }
}

TEST_F(CudaPlacements, HostMemoryThatCannotBePinnedIsUsedAllTheSame) {
  test::Draw draw(3);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  plan::PlanInput input = on_gpu(test::random_input(draw, spec, 1));
  const plan::Placement placement = plan::smallest_placement(input);
  const test::RunResult pinned = run(input, placement, "");
  EXPECT_TRUE(run(input, placement, "pageable=1 register@1 delay_us=100") == pinned);
}

}  // namespace
}  // namespace strata

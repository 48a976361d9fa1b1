// SPDX-License-Identifier: Apache-2.0
// The rate of a model on a device with memory of its own comes from the device's times, without the
// first run of anything, and from memory within a limit.
#include "engine/exec/compute_probe.h"

#include <gtest/gtest.h>

#include "engine/model/architecture.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/exec/fake_device.h"

namespace strata::exec {
namespace {

model::ModelSpec small_spec(bool tied) {
  model::Architecture small;
  small.model_type = "llama";
  small.hidden = 64;
  small.layers = 3;
  small.heads = 4;
  small.kv_heads = 2;
  small.head_size = 16;
  small.feed_forward = 128;
  small.vocabulary = 500;
  small.max_position = 64;
  small.tied = tied;
  return model::build_spec(small);
}

// Of what a plan does when it recomputes `recomputed` of the interiors: attention with its output,
// which the MLP reads, and the MLP without.
double flops_of(const model::ModelSpec& spec, const model::BatchShape& shape,
                const kernels::DeviceDescription& device, double recomputed) {
  double flops = 0;
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    const model::Footprint one =
        model::footprint(spec, static_cast<int>(i), shape, Recipe::kBf16, device);
    const bool attends = spec.segments[i].kind == model::SegmentKind::kAttention;
    flops += one.backward_flops;
    if (spec.segments[i].kind == model::SegmentKind::kHead) continue;
    flops += one.forward_flops;
    flops += recomputed * (attends ? one.forward_flops : one.recompute_flops);
  }
  return flops;
}

// Each op takes a second and loading takes 100. The embedding has 2 ops, a block's segments 3 each,
// one of them recomputes, and the head has one.
TEST(ComputeProbe, EverySegmentCountsAndLoadingDoesNot) {
  const model::ModelSpec spec = small_spec(true);
  const model::BatchShape shape = {2, 16};
  for (const double recomputed : {0.0, 0.5, 1.0}) {
    for (const int rounds : {1, 3}) {
      test::FakeDevice device({.op_s = 1, .product_flops_per_s = 1e30, .load_s = 100});
      const double rate = probe_compute({.spec = spec,
                                         .recipe = Recipe::kBf16,
                                         .shape = shape,
                                         .device = device,
                                         .rounds = rounds,
                                         .recomputed = recomputed});
      const double expected_s = 2 + 3 * 2 * (2 + recomputed) + 1;
      const double flops = flops_of(spec, shape, device.description(), recomputed);
      EXPECT_NEAR(rate, flops / expected_s, 1e-9 * rate);
    }
  }
}

TEST(ComputeProbe, StaysWithinALimitOfTheDevicesMemory) {
  const model::ModelSpec spec = small_spec(true);
  const auto rate_within = [&](int64_t bytes, test::FakeDevice& device) {
    return probe_compute({.spec = spec,
                          .recipe = Recipe::kBf16,
                          .shape = {1, 32},
                          .device = device,
                          .device_bytes = bytes});
  };
  const test::FakeTimes times = {.op_s = 1};
  test::FakeDevice free(times), enough(times), less(times), none(times);
  EXPECT_GT(rate_within(int64_t{1} << 40, free), 0);
  const int64_t needed = free.most_bytes();
  EXPECT_GT(rate_within(needed, enough), 0);
  EXPECT_EQ(enough.most_bytes(), needed);
  EXPECT_EQ(rate_within(needed - 1, less), 0);
  EXPECT_LT(less.most_bytes(), needed);
  EXPECT_EQ(rate_within(1, none), 0);
  EXPECT_EQ(none.most_bytes(), 0);
}

// Its rules hold for the calls of the probe: ranges, addresses, and no memory of the host.
TEST(ComputeProbe, MeasuresEveryRecipeOnTheEmulatedDevice) {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp16}) {
    for (const bool tied : {false, true}) {
      for (const bool documents : {false, true}) {
        const model::ModelSpec spec = small_spec(tied);
        const auto device = kernels::make_emulated_device(kernels::cpu_backend(), {.threads = 1});
        const double rate = probe_compute({.spec = spec,
                                           .recipe = recipe,
                                           .shape = {2, 16, documents},
                                           .device = *device,
                                           .rounds = 3});
        EXPECT_GT(rate, 1e6);
        EXPECT_LT(rate, 1e14);
      }
    }
  }
}

}  // namespace
}  // namespace strata::exec

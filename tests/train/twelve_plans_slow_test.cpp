// SPDX-License-Identifier: Apache-2.0
// Llamas of 8 to 405 billion parameters on a server, a workstation and a laptop, each with one GPU.
// Every plan is accepted by the verifier, stays within the machine's device, host memory and drives
// and uses them, and its predicted step is neither faster than the machine can be nor much slower.
// What a machine cannot hold is refused, with the least that fits.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "engine/base/units.h"
#include "engine/plan/ground.h"
#include "engine/plan/lower_bound.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/refusal.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

using plan::Arena;

// Llama 3.1's shapes; 32B has the sizes of Qwen3's.
model::Architecture llama_of(const std::string& size) {
  struct Size {
    const char* name;
    int64_t layers, hidden, heads, feed_forward;
  };
  constexpr Size kSizes[] = {{"8B", 32, 4096, 32, 14336},
                             {"32B", 64, 5120, 64, 25600},
                             {"70B", 80, 8192, 64, 28672},
                             {"405B", 126, 16384, 128, 53248}};
  for (const Size& each : kSizes) {
    if (size != each.name) continue;
    model::Architecture at = llama(each.layers, each.hidden);
    at.heads = each.heads;
    at.kv_heads = 8;
    at.feed_forward = each.feed_forward;
    at.vocabulary = 128256;
    return at;
  }
  ADD_FAILURE() << "no model " << size;
  return {};
}

// 65,536 tokens a step.
config::Options options_of_a_step() {
  config::Options options = bf16_options(1);
  options.sequence_length = 4096;
  options.accumulate = 16;
  return options;
}

int64_t used_of(const RunPlan& run, Arena arena) {
  return run.ranks[0].arenas.bytes[static_cast<size_t>(arena)];
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

plan::LowerBound bound_of(const RunPlan& run) {
  const plan::Ground ground = plan::ground_of(run.input);
  return plan::lower_bound({.spec = *run.spec,
                            .layout = run.ranks[0].layout,
                            .footprints = ground.footprints,
                            .micro_batches = run.input.micro_batches,
                            .boundary_bytes = plan::boundary_tensor_bytes(run.input),
                            .recipe = run.input.recipe,
                            .holds_gradients = run.input.update().waits,
                            .discrete = true,
                            .device_bytes = run.input.device_budget,
                            .host_bytes = run.input.host_budget},
                           run.rates);
}

// Arithmetic with everything computed twice in forward, and only then 34 bytes a parameter over the
// drives, which is all state and the gradients in both directions (engine/ARCHITECTURE.md).
double without_any_overlap_s(const config::Machine& machine, double parameters, double flops) {
  return flops * 8 / 6 / machine.matmul_bf16_flops_per_s +
         34 * parameters / machine.nvme_mixed_bytes_per_s;
}

// How the plan of a machine and a model is.
struct Planned {
  const char* machine;
  const char* model;
  bool on_drives;  // what does not fit in memory
  // Of the profile's rate of products. 0.75 is what arithmetic reaches when it never waits and
  // computes each forward twice: 6 operations a parameter and token that count, of 8. Plans that
  // wait for drives are below; those that keep activations are above. With nothing hidden behind
  // anything, drives of these machines would leave 0.35 to 0.5.
  double mfu_min, mfu_max;
  double bounds_max;  // the step's time over that of the lower bound
};

// The update waits for the norm of all gradients. So state passes in the first of 16 micro-batches
// only, which the bound does not know: where the drives carry it, a step takes up to twice as long.
constexpr Planned kPlanned[] = {
    {"laptop-24gb", "8B", true, 0.40, 0.75, 2.0},
    {"laptop-24gb", "32B", true, 0.40, 0.75, 2.0},
    {"laptop-24gb", "70B", true, 0.40, 0.75, 2.0},
    {"rtx4090-4nvme", "8B", false, 0.75, 0.95, 1.3},
    {"rtx4090-4nvme", "32B", true, 0.70, 0.95, 1.4},
    {"rtx4090-4nvme", "70B", true, 0.55, 0.75, 1.6},
    {"h200-8nvme", "8B", false, 0.75, 0.95, 1.3},
    {"h200-8nvme", "32B", false, 0.75, 0.95, 1.3},
    {"h200-8nvme", "70B", false, 0.75, 0.95, 1.3},
    {"h200-8nvme", "405B", true, 0.40, 0.75, 2.0},
};

std::string name_of(const char* machine, const char* model) {
  const std::string name = std::string(machine) + "_" + model;
  return std::regex_replace(name, std::regex("-"), "_");
}

class PlansOfMachines : public testing::TestWithParam<Planned> {};

TEST_P(PlansOfMachines, AreSoundUseTheTiersAndTakeAboutAsLongAsTheyMust) {
  const Planned& expected = GetParam();
  const config::Machine machine = profile(expected.machine);
  const model::Architecture architecture = llama_of(expected.model);
  const RunPlan run = planned(machine, architecture, options_of_a_step());
  const plan::Plan& plan = run.ranks[0];
  ASSERT_TRUE(run.input.device.discrete);

  const plan::VerifyReport report = plan::verify(plan, *run.spec);
  ASSERT_TRUE(report.ok()) << report.violations.front().text;

  const int64_t host_bytes = used_of(run, Arena::kHost) + run.outside_bytes;
  const int64_t nvme_bytes = used_of(run, Arena::kNvme);
  EXPECT_LE(share(used_of(run, Arena::kDevice), machine.device_bytes), kShareOfDevice);
  EXPECT_LE(share(host_bytes, machine.host_bytes), kShareOfUsable);
  EXPECT_LE(share(nvme_bytes, machine.nvme_bytes), kShareOfFreeSpace);
  EXPECT_GE(share(used_of(run, Arena::kDevice), machine.device_bytes), 0.7);
  EXPECT_EQ(nvme_bytes > 0, expected.on_drives);
  EXPECT_TRUE(!expected.on_drives || share(host_bytes, machine.host_bytes) >= 0.7) << host_bytes;
  // bf16 weights, the rest of their masters and two moments are somewhere.
  EXPECT_GE(used_of(run, Arena::kDevice) + host_bytes + nvme_bytes,
            12 * run.spec->parameter_count());

  const plan::SimulationResult simulated =
      plan::simulate(plan, plan::ProgramName::kStep, run.rates);
  ASSERT_EQ(simulated.blocked, "");
  EXPECT_NEAR(simulated.step_s, run.predicted_step_s, 0.02 * simulated.step_s);
  const double bound_s = bound_of(run).step_s;
  EXPECT_GE(simulated.step_s, bound_s);
  EXPECT_LE(simulated.step_s, expected.bounds_max * bound_s);
  const auto parameters = static_cast<double>(run.spec->parameter_count());
  EXPECT_LT(simulated.step_s, without_any_overlap_s(machine, parameters, run.model_flops));
  // Products of all weights but the embedding's, and those of attention.
  const auto embedding = static_cast<double>(architecture.vocabulary * architecture.hidden);
  const double products = 6 * 65536 * (parameters - embedding);
  EXPECT_GE(run.model_flops, products);
  EXPECT_LE(run.model_flops, 1.2 * products);
  const double mfu = run.model_flops / simulated.step_s / machine.matmul_bf16_flops_per_s;
  EXPECT_GE(mfu, expected.mfu_min);
  EXPECT_LE(mfu, expected.mfu_max);
}

INSTANTIATE_TEST_SUITE_P(Of, PlansOfMachines, testing::ValuesIn(kPlanned),
                         [](const auto& at) { return name_of(at.param.machine, at.param.model); });

struct Refused {
  const char* machine;
  bool lacks_space;  // on drives too
};

class RefusedPlans : public testing::TestWithParam<Refused> {};

// Its embedding alone is 4 GiB of weights and 8 GiB of gradients, which the device must have at
// once with the workspace of the loss.
TEST_P(RefusedPlans, Of405BNameTheLeastThatFits) {
  const Refused& expected = GetParam();
  config::Machine machine = profile(expected.machine);
  config::Options options = options_of_a_step();
  const auto require = [&] {
    const PlanBasis basis = basis_of(machine, llama_of("405B"), options);
    require_fit(basis.spec, basis.options, basis.facts);
  };
  int64_t device_bytes = 0, space_bytes = 0;
  try {
    require();
    FAIL() << "accepted";
  } catch (const plan::DoesNotFit& refusal) {
    EXPECT_FALSE(refusal.lacks(Arena::kHost)) << refusal.what();
    for (const plan::Shortage& shortage : refusal.shortages()) {
      (shortage.arena == Arena::kDevice ? device_bytes : space_bytes) = shortage.need_bytes;
    }
  }
  EXPECT_NEAR(share(device_bytes, kGiB), 35.5, 0.5);
  EXPECT_EQ(space_bytes > 0, expected.lacks_space);

  options.device_memory = device_bytes;
  if (expected.lacks_space) machine.nvme_bytes = space_bytes;
  EXPECT_NO_THROW(require());
  if (expected.lacks_space) {
    machine.nvme_bytes -= space_bytes / 50;  // more than host memory has room for
  } else {
    options.device_memory -= kMiB;
  }
  EXPECT_THROW(require(), plan::DoesNotFit) << "less than the least";
}

INSTANTIATE_TEST_SUITE_P(Of, RefusedPlans,
                         testing::Values(Refused{"laptop-24gb", true},
                                         Refused{"rtx4090-4nvme", false}),
                         [](const auto& at) { return name_of(at.param.machine, "405B"); });

}  // namespace
}  // namespace strata::train

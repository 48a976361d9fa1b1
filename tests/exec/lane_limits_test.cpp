// SPDX-License-Identifier: Apache-2.0
// What lanes have for their ops: time for arithmetic that takes longer than the deadline, room for
// all transfers of the ops in flight, and threads only where there are ops.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/exec/io_work.h"
#include "tests/support/small_model.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using plan::Lane;

std::atomic<bool> is_slow;

void loss_that_is_slow_once(const kernels::LinearCrossEntropy& op) {
  // Lanes that wait look at the deadline once a second.
  if (is_slow.exchange(false)) std::this_thread::sleep_for(std::chrono::milliseconds(2600));
  kernels::ref_backend().linear_cross_entropy(op);
}

class Lanes : public testing::Test {
 protected:
  explicit Lanes(const model::Architecture& architecture = test::small_llama(), int world = 1)
      : spec_(model::build_spec(architecture)) {
    model::assign_offsets(spec_, world);
    input_.spec = &spec_;
    input_.shape = {1, 8};
    input_.mesh.world = world;
    input_.nvme_budget = plan::kNoLimit;
  }

  const test::TemporaryDirectory directory_;
  model::ModelSpec spec_;
  plan::PlanInput input_;
};

class LaneLimits : public Lanes, public testing::WithParamInterface<bool> {};

TEST_P(LaneLimits, ArithmeticMayTakeLongerThanTheDeadline) {
  input_.device.discrete = GetParam();
  kernels::Backend backend = kernels::ref_backend();
  backend.linear_cross_entropy = loss_that_is_slow_once;
  test::RunOptions options;
  options.backend = &backend;
  options.deadline_s = 1;
  options.directory = directory_.path();
  const plan::Placement placement = test::all_in_memory(input_);
  const test::RunResult expected = small_run(input_, placement, options);
  is_slow = true;
  EXPECT_TRUE(small_run(input_, placement, options) == expected);
  EXPECT_FALSE(is_slow);
}

INSTANTIATE_TEST_SUITE_P(Computes, LaneLimits, testing::Bool(), [](const auto& of) {
  return of.param ? "OnAnEmulatedDevice" : "OnTheHost";
});

int64_t thread_count() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

class LaneThreads : public Lanes {};

TEST_F(LaneThreads, AreThoseOfLanesWithOps) {
  const plan::Plan plan = plan::build_plan(input_, test::all_in_memory(input_));
  int64_t lanes = 0;
  for (size_t lane = 0; lane < plan::kLaneCount; ++lane) {
    lanes += std::ranges::any_of(
        plan.programs, [&](const plan::Program& program) { return !program.lanes[lane].empty(); });
  }
  const int64_t before = thread_count();
  exec::ExecutorOptions options;
  options.backend = &kernels::ref_backend();
  const exec::Executor executor(plan, spec_, options);
  EXPECT_EQ(thread_count() - before, lanes);
  EXPECT_LT(lanes, 4);
}

// An MLP of 2.6 billion parameters for two ranks.
class LaneTransfers : public Lanes {
 protected:
  LaneTransfers() : Lanes(wide(), 2) {}
  static model::Architecture wide() {
    model::Architecture at = test::small_llama();
    at.layers = 1;
    at.hidden = 8192;
    at.feed_forward = 106496;
    return at;
  }
};

// A rank's part of each chunk is apart from those of the others, so each is a transfer.
TEST_F(LaneTransfers, OfAllOpsInFlightHaveRoom) {
  const plan::Plan plan = plan::build_plan(input_, plan::smallest_placement(input_));
  uint32_t most_of_an_op = 0;
  for (const Lane lane : {Lane::kReadWeights, Lane::kReadState, Lane::kWrite}) {
    const uint32_t room = exec::most_transfers(plan, lane);
    for (const plan::Program& program : plan.programs) {
      for (const uint32_t index : program.lanes[static_cast<size_t>(lane)]) {
        const auto accesses = program.accesses_of(program.ops[index]);
        const auto count = static_cast<uint32_t>(
            std::ranges::count(accesses, plan::Arena::kNvme, &plan::Access::arena));
        EXPECT_GE(room, count * static_cast<uint32_t>(plan.io_depth));
        most_of_an_op = std::max(most_of_an_op, count);
      }
    }
  }
  EXPECT_GT(most_of_an_op * static_cast<uint32_t>(plan.io_depth),
            io::ChannelOptions().max_transfers);
}

}  // namespace
}  // namespace strata

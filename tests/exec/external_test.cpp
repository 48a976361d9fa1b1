// SPDX-License-Identifier: Apache-2.0
// A caller that computes by itself: its plans verify, its state has the same bits wherever it lies
// and in whichever order it uses its segments, it may skip a use and take its time, and a use out
// of turn is an error that names both.
#include <chrono>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "tests/exec/external_fixture.h"

namespace strata {
namespace {

TEST_F(External, StateHasTheSameBitsWhereverItLies) {
  test::Draw draw(11);
  for (const std::vector<model::ExternalUse>& order : orders()) {
    spec_ = model::external_spec(segments_, order);
    for (const plan::UpdateRule& rule : plan::kUpdateTable) {
      for (const int micro_batches : {1, 2, 3}) {
        input_.mode = rule.mode;
        input_.micro_batches = micro_batches;
        const uint64_t expected = run(resident_placement(input_), options());
        EXPECT_EQ(run(plan::smallest_placement(input_), options()), expected);
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(run(test::random_placement(draw, input_), options()), expected);
        }
      }
    }
  }
}

// A segment that no use of the order takes back gets one at the end.
std::vector<model::ExternalUse> random_order(test::Draw& draw, int count) {
  std::vector<model::ExternalUse> order(static_cast<size_t>(draw.between(1, 12)));
  std::vector<char> has_backward(static_cast<size_t>(count), 0);
  for (model::ExternalUse& use : order) {
    use.backward = draw.coin();
    use.flops = draw.coin() ? 1e6 : 0;
    const auto first = draw.below(count);
    for (int64_t i = 0; i <= draw.below(3); ++i) {
      use.segments.push_back(static_cast<int>((first + i) % count));
      if (use.backward) has_backward[static_cast<size_t>(use.segments.back())] = 1;
    }
  }
  for (int s = 0; s < count; ++s) {
    if (has_backward[static_cast<size_t>(s)] == 0) order.push_back({{s}, true});
  }
  return order;
}

TEST_F(External, RandomOrdersHaveTheSameBitsWhereverTheirStateLies) {
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    test::Draw draw(seed);
    spec_ = model::external_spec(segments_, random_order(draw, 4));
    input_.micro_batches = static_cast<int>(draw.between(1, 3));
    const uint64_t expected = run(resident_placement(input_), options());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(run(test::random_placement(draw, input_), options()), expected) << seed;
    }
    input_.host_budget =
        plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1] + 200'000;
    EXPECT_EQ(run(plan::make_plan(input_, {}).placement, options()), expected) << seed;
    input_.host_budget = plan::kNoLimit;
  }
}

TEST_F(External, SumsOfGradientsNeedNoMemoryForAll) {
  input_.micro_batches = 1;
  const int64_t once = plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1];
  input_.micro_batches = 8;
  const int64_t often = plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1];
  EXPECT_EQ(once, often);
}

// A skipped backward counts as zeros, in a step's first contribution and in later ones.
TEST_F(External, ASkippedUseAddsNothing) {
  const auto skips_b = [](int64_t step, NextUse next) {
    return step == 2 && (next.use == 1 || next.use == 6) && next.micro_batch != 1;
  };
  input_.micro_batches = 3;
  Caller caller;
  caller.skips = skips_b;
  const uint64_t expected = run(resident_placement(input_), options(), caller);
  EXPECT_EQ(run(plan::smallest_placement(input_), options(), caller), expected);
  EXPECT_NE(run(resident_placement(input_), options()), expected);
}

// Lanes that wait for the caller look at the deadline once a second.
TEST_F(External, ACallerThatComputesForLongerThanTheDeadlineIsNoHang) {
  const plan::Placement placement = plan::smallest_placement(input_);
  const uint64_t expected = run(placement, options());
  exec::ExecutorOptions hasty = options();
  hasty.deadline_s = 0.5;
  int passes = 0;
  Caller caller;
  caller.compute = [&] {
    if (++passes == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  };
  EXPECT_EQ(run(placement, hasty, caller), expected);
}

TEST_F(External, APassOutOfTurnNamesBoth) {
  const plan::Plan plan = plan::build_plan(input_, plan::smallest_placement(input_));
  exec::Executor executor(plan, spec_, options());
  test::RandomSource source(spec_, 3);
  exec::Instance load;
  load.program = plan::ProgramName::kLoad;
  load.source = &source;
  executor.run(load);
  exec::Instance step;
  executor.submit(step);
  try {
    executor.ready(1, exec::Pass::kBackward);
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("backward of b"), std::string::npos) << text;
    EXPECT_NE(text.find("forward of a"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace strata

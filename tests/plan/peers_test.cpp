// SPDX-License-Identifier: Apache-2.0
// Plans for ranks whose devices send each other memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan/builder.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

class PeersPlan : public testing::Test {
 protected:
  void SetUp() override {
    test::Draw draw(6);
    spec_ = model::build_spec(test::random_architecture(draw));
    model::assign_offsets(spec_, 2);
    input_.spec = &spec_;
    input_.shape = {1, 8};
    input_.mesh = {.world = 2, .zero_stage = 3};
    input_.nvme_budget = int64_t{1} << 40;
    input_.device.discrete = true;
  }

  Plan plan_with(bool peers) {
    input_.device.peers = peers;
    return build_plan(input_, smallest_placement(input_));
  }

  static int64_t buffers_in(const Plan& plan, Arena arena) {
    int64_t bytes = 0;
    for (const LedgerLine& line : plan.arenas.lines) {
      if (line.arena == arena && line.purpose == "bounce buffers") bytes += line.bytes;
    }
    return bytes;
  }

  model::ModelSpec spec_;
  PlanInput input_;
};

TEST_F(PeersPlan, HaveTheirBuffersOnTheDevice) {
  const Plan direct = plan_with(true), by_host = plan_with(false);
  EXPECT_TRUE(verify(direct, spec_).ok());
  EXPECT_EQ(buffers_in(direct, Arena::kHost), 0);
  EXPECT_GT(buffers_in(direct, Arena::kDevice), 0);
  EXPECT_GT(buffers_in(by_host, Arena::kHost), 0);
  EXPECT_EQ(buffers_in(by_host, Arena::kDevice), 0);
}

// An op between ranks whose buffer is on the other side, and one without any.
TEST_F(PeersPlan, OpsWithoutTheirBufferAreRefused) {
  for (const bool peers : {true, false}) {
    for (const bool keeps : {true, false}) {
      Plan plan = plan_with(peers);
      Program& step = plan.programs[static_cast<size_t>(ProgramName::kStep)];
      const auto gather = std::ranges::find(step.ops, OpKind::kGather, &Op::kind);
      ASSERT_NE(gather, step.ops.end());
      Access& buffer = step.accesses[gather->access_end - 1];
      ASSERT_EQ(buffer.value.kind, ValueKind::kScratch);
      if (keeps) {
        buffer.arena = peers ? Arena::kHost : Arena::kDevice;
        buffer.offset = 0;
      } else {
        --gather->access_end;
      }
      const VerifyReport report = verify(plan, spec_);
      EXPECT_TRUE(std::ranges::any_of(report.violations,
                                      [](const Violation& one) {
                                        return one.kind == "arena" &&
                                               one.text.find("gather has") != std::string::npos;
                                      }))
          << peers << keeps;
    }
  }
}

TEST_F(PeersPlan, ExchangeAtTheRateOfTheirLink) {
  Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = rates.mixed_bytes_per_s = 1e12;
  rates.matmul_flops_per_s = 1e15;
  rates.memory_bytes_per_s = rates.device_memory_bytes_per_s = 1e12;
  rates.upload_bytes_per_s = rates.download_bytes_per_s = 1e12;
  rates.comm_within_bytes_per_s = 1e6;
  const Plan plan = plan_with(true);
  const auto exchange_s = [&] {
    const SimulationResult result = simulate(plan, ProgramName::kStep, rates);
    return result.any_works_s(kRanksExchange);
  };
  const double by_host_s = exchange_s();
  rates.comm_peer_bytes_per_s = 1e7;
  EXPECT_NEAR(exchange_s(), by_host_s / 10, by_host_s / 50) << "norms are on the host";
}

}  // namespace
}  // namespace strata::plan

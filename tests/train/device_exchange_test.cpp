// SPDX-License-Identifier: Apache-2.0
// When ranks' devices send each other memory.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

using config::DeviceExchange;

class Exchange : public testing::Test {
 protected:
  Exchange() : machine_(profile("h200-8nvme")) {
    machine_.device_count = 4;
    options_.device = config::Device::kAuto;
    options_.sequence_length = 512;
  }
  RunPlan plan() const { return planned(machine_, llama(2, 512), options_); }
  bool is_direct() const { return plan().input.device.peers; }
  std::string refusal() const {
    try {
      plan();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
    return "";
  }

  config::Machine machine_;
  config::Options options_ = bf16_options(4);
};

TEST_F(Exchange, IsDirectWhereGpusCan) {
  EXPECT_TRUE(is_direct());
  const RunPlan direct = plan();
  EXPECT_EQ(direct.rates.comm_peer_bytes_per_s, machine_.peer_bytes_per_s);
  EXPECT_NE(plan_table(direct, report_of(direct)).find("; their devices send each other memory"),
            std::string::npos);
  EXPECT_EQ(plan_json(direct, report_of(direct)).find("device_exchange")->string(), "direct");
  options_.device_exchange = DeviceExchange::kHost;
  EXPECT_FALSE(is_direct());
  EXPECT_GT(plan().predicted_step_s, direct.predicted_step_s);
  options_.device_exchange = DeviceExchange::kAuto;
  options_.ranks = 1;
  EXPECT_FALSE(is_direct());
}

TEST_F(Exchange, IsByTheHostWhereGpusCannot) {
  options_.reduce_dtype = Payload::kMxInt8;
  EXPECT_FALSE(is_direct());
  options_.reduce_dtype = Payload::kBF16;
  options_.device_exchange = DeviceExchange::kDirect;
  EXPECT_TRUE(is_direct());
  machine_.peer_bytes_per_s = 0;
  EXPECT_NE(refusal().find("h200-8nvme does not say peer_bytes_per_s"), std::string::npos)
      << refusal();
  options_.device_exchange = DeviceExchange::kAuto;
  EXPECT_FALSE(is_direct());
}

// Emulated devices do it where it is asked for, and where they are of one process.
TEST_F(Exchange, OfEmulatedDevicesIsAskedFor) {
  PlanBasis basis = basis_of(profile("small-2core"), llama(2, 512), options_);
  basis.facts.elsewhere = false;
  basis.facts.has_peers = true;
  basis.options.device = config::Device::kEmulated;
  basis.options.device_memory = kGiB;
  EXPECT_FALSE(planned(basis).input.device.peers);
  basis.options.device_exchange = DeviceExchange::kDirect;
  EXPECT_TRUE(planned(basis).input.device.peers);
  basis.facts.has_peers = false;
  EXPECT_THROW(planned(basis), Error);
}

}  // namespace
}  // namespace strata::train

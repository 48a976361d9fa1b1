// SPDX-License-Identifier: Apache-2.0
// Whether drives are enough for a run, asked of the planner itself, which takes seconds a plan.
#include <gtest/gtest.h>

#include <string>

#include "bindings/cli/bench_advice.h"
#include "engine/base/error.h"

namespace strata::cli::test {
namespace {

// A model of 1.1 billion parameters on a machine whose drives and compute are made up.
class AdviceTest : public testing::Test {
 protected:
  AdviceTest() {
    question_.model = STRATA_TEST_DATA "/cli/one_billion.json";
    question_.tokens = 8192;
    question_.sequence_length = 512;
    question_.host_memory = int64_t{8} << 30;
    question_.free_bytes = int64_t{1} << 40;
    config::Machine& machine = question_.machine;
    machine.cores = 16;
    machine.host_bytes = int64_t{64} << 30;
    machine.device = config::DeviceKind::kCuda;
    machine.device_bytes = int64_t{2} << 30;  // no home of much state
    machine.matmul_flops_per_s = 150e12;
    machine.memory_bytes_per_s = machine.optimizer_bytes_per_s = 60e9;
    machine.upload_bytes_per_s = machine.download_bytes_per_s = 24e9;
    machine.checksum_bytes_per_s = 10e9;
    set_drive(2e9);
  }
  void set_drive(double bytes_per_s) {
    question_.machine.nvme_read_bytes_per_s = bytes_per_s;
    question_.machine.nvme_write_bytes_per_s = bytes_per_s;
    question_.machine.nvme_mixed_bytes_per_s = bytes_per_s;
  }
  AdviceQuestion question_;
};

TEST_F(AdviceTest, SlowDrivesAreNotEnoughAndAsManyAsItSaysAre) {
  const Advice advice = advise(question_);
  ASSERT_FALSE(advice.enough());
  ASSERT_GT(advice.drives_enough, 1);
  EXPECT_GT(advice.step_s, advice.hidden_s * (1 + kHiddenTolerance));
  EXPECT_NE(advice_text(advice).find("NOT ENOUGH"), std::string::npos) << advice_text(advice);
  // As many drives in truth, and one less: measured together, they are that much faster.
  for (const int count : {advice.drives_enough, advice.drives_enough - 1}) {
    set_drive(2e9 * count);
    question_.drives = count;
    const Advice other = advise(question_);
    EXPECT_EQ(other.enough(), count == advice.drives_enough) << advice_text(other);
    EXPECT_EQ(other.drives_enough, advice.drives_enough);
  }
}

TEST_F(AdviceTest, MoreTokensHideTheSameDrives) {
  const Advice few = advise(question_);
  question_.tokens *= 4;
  const Advice many = advise(question_);
  EXPECT_LT(many.drives_enough, few.drives_enough);
  EXPECT_GE(many.read_bytes, 0.9 * few.read_bytes) << "activations leave state no more room";
  EXPECT_GT(many.hidden_s, 2 * few.hidden_s);
}

TEST_F(AdviceTest, FastDrivesAreEnoughAndItSaysHowManyWouldDoAndThatSpaceLacks) {
  set_drive(2e12);
  question_.free_bytes = 1 << 30;
  question_.drives = 1000;
  Advice advice = advise(question_);
  EXPECT_FALSE(advice.enough()) << advice_text(advice);
  EXPECT_NE(advice_text(advice).find("but there is only 1 GiB free"), std::string::npos);
  EXPECT_NE(advice_text(advice).find("NOT ENOUGH SPACE"), std::string::npos);
  advice.free_bytes = advice.scratch_bytes;
  EXPECT_TRUE(advice.enough()) << advice_text(advice);
  EXPECT_LT(advice.drives_enough, 500);
  EXPECT_NE(advice_text(advice).find(" would be enough"), std::string::npos) << advice_text(advice);
}

TEST_F(AdviceTest, WhatCannotWorkIsAnError) {
  question_.model = STRATA_TEST_DATA "/cli/missing.json";
  EXPECT_THROW(advise(question_), Error);
  question_.model = STRATA_TEST_DATA "/cli";
  EXPECT_THROW(advise(question_), Error);
  question_.model = STRATA_TEST_DATA "/cli/one_billion.json";
  question_.host_memory = 1 << 20;
  EXPECT_THROW(advise(question_), Error);
}

}  // namespace
}  // namespace strata::cli::test

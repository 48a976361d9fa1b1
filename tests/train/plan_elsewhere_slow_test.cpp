// SPDX-License-Identifier: Apache-2.0
// Plans for machines that are not here: of the profiles that come with the source, for one rank to
// 1,024, each verified and simulated, within the memory that the profile gives.
#include "engine/train/plan_elsewhere.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <string>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/plan/refusal.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

using plan::Arena;

int64_t bytes_of(const RunPlan& run, Arena arena) {
  return run.ranks[0].arenas.bytes[static_cast<size_t>(arena)];
}

std::string refusal_of(const config::Machine& machine, const model::Architecture& architecture,
                       const config::Options& options) {
  try {
    planned(machine, architecture, options);
  } catch (const plan::DoesNotFit& refusal) {
    return refusal.what();
  }
  return "it fits";
}

// The size that the first group of a pattern is in a text; -1 where there is none.
int64_t size_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  const bool found = std::regex_search(text, match, std::regex(pattern));
  EXPECT_TRUE(found) << pattern << " in " << text;
  return found ? parse_bytes(match[1].str()).value_or(-1) : -1;
}

void expect_sound(const RunPlan& run) {
  for (const plan::Plan& rank : run.ranks) {
    const plan::VerifyReport report = plan::verify(rank, *run.spec);
    ASSERT_TRUE(report.ok()) << rank.mesh.rank << ": " << report.violations.front().text;
  }
  const bool alone = run.ranks.size() == 1;
  EXPECT_TRUE(alone || plan::verify_ranks(run.ranks, *run.spec).ok());
  const double step_s =
      plan::simulate(run.ranks.back(), plan::ProgramName::kStep, run.rates).step_s;
  EXPECT_GT(step_s, 0);
  EXPECT_LT(step_s, 1e5);
  EXPECT_NEAR(step_s, run.predicted_step_s, 0.02 * step_s) << "ranks have equal parts";
}

TEST(PlanElsewhere, ServersAndWorkstationsWithADeviceHoldModelsLargerThanTheirMemory) {
  struct Case {
    const char* machine;
    int64_t layers, hidden;  // 70 and 30 thousand million parameters
  };
  for (const Case& at : {Case{"h200-8nvme", 64, 8192}, Case{"rtx4090-4nvme", 52, 6144}}) {
    SCOPED_TRACE(at.machine);
    const config::Machine machine = profile(at.machine);
    const RunPlan run = planned(machine, llama(at.layers, at.hidden), bf16_options(1));
    EXPECT_GT(16 * run.spec->parameter_count(), machine.host_bytes / 2);
    EXPECT_TRUE(run.input.device.discrete);
    EXPECT_GT(bytes_of(run, Arena::kDevice), 0);
    EXPECT_LE(bytes_of(run, Arena::kDevice), machine.device_bytes);
    EXPECT_LE(bytes_of(run, Arena::kHost) + run.outside_bytes, machine.host_bytes);
    EXPECT_EQ(run.threads, machine.cores);
    expect_sound(run);
  }
}

// A drive that is too small for all state is used as far as it goes.
TEST(PlanElsewhere, WhatADriveHasNoRoomForIsInMemory) {
  config::Machine machine = profile("small-2core");
  machine.nvme_bytes = 10 * kGiB;
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.host_memory = 18 * kGiB;
  const RunPlan run = planned(machine, llama(24, 2048), options);  // 27 GiB of state
  expect_sound(run);
  EXPECT_LE(bytes_of(run, Arena::kNvme), machine.nvme_bytes);
  EXPECT_GT(bytes_of(run, Arena::kNvme), machine.nvme_bytes / 4);
  // Where memory does not suffice for the rest, what is named does: space, or memory.
  options.host_memory = 4 * kGiB;
  const std::string refusal = refusal_of(machine, llama(24, 2048), options);
  EXPECT_EQ(refusal.find("host memory: needs"), refusal.npos) << refusal;
  const int64_t space = size_in(refusal, "NVMe space: needs at least ([0-9.]+ GiB), has 10 GiB");
  const int64_t memory = size_in(refusal, "the least that fits is --host-memory ([0-9.]+GiB),");
  EXPECT_GE(
      size_in(refusal, "GiB, or --host-memory [0-9.]+[MG]iB with ([0-9.]+ GiB) of free space"),
      space);
  machine.nvme_bytes = space;
  expect_sound(planned(machine, llama(24, 2048), options));
  machine.nvme_bytes -= space / 50;
  EXPECT_THROW(planned(machine, llama(24, 2048), options), plan::DoesNotFit);
  machine.nvme_bytes = 10 * kGiB;
  options.host_memory = memory;
  expect_sound(planned(machine, llama(24, 2048), options));
  options.host_memory -= 112 * kMiB;  // it is named with three digits
  EXPECT_THROW(planned(machine, llama(24, 2048), options), plan::DoesNotFit);
}

// 16 bytes a parameter, of which memory has room for little.
TEST(PlanElsewhere, DrivesThatAreTooSmallAreNamedWithTheSpaceThatIsNeeded) {
  model::Architecture architecture = llama(126, 16384);
  architecture.kv_heads = 8;
  architecture.feed_forward = 53248;
  architecture.vocabulary = 128256;
  const std::string refusal = refusal_of(profile("laptop-24gb"), architecture, bf16_options(1));
  const int64_t space = size_in(refusal, "NVMe space: needs at least ([0-9.]+ TiB), has 1.82 TiB");
  const auto parameters = static_cast<double>(model::build_spec(architecture).parameter_count());
  EXPECT_NEAR(static_cast<double>(space) * kShareOfFreeSpace / parameters, 16, 0.5);
}

// The tokens of a batch take memory outside of arenas too.
TEST(PlanElsewhere, ABatchThatIsFarTooLargeIsNamed) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.micro_batch = 1 << 20;
  const std::string refusal = refusal_of(profile("small-2core"), llama(4, 512), options);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(refusal, match,
                                std::regex("smaller batch, such as --micro-batch ([0-9]+);")))
      << refusal;
  EXPECT_NE(refusal.find("the least that fits is --host-memory "), refusal.npos);
  EXPECT_FALSE(std::regex_search(refusal, std::regex("[0-9]{5}(\\.[0-9])?GiB"))) << refusal;
  options.micro_batch = std::stoll(match[1].str());
  EXPECT_NO_THROW(planned(profile("small-2core"), llama(4, 512), options));
  options.micro_batch *= 4;
  EXPECT_THROW(planned(profile("small-2core"), llama(4, 512), options), plan::DoesNotFit);
}

TEST(PlanElsewhere, FarMoreThreadsThanCoresAreRefused) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.threads = 32;
  EXPECT_NO_THROW(planned(profile("small-2core"), llama(2, 512), options));
  options.threads = 33;
  try {
    planned(profile("small-2core"), llama(2, 512), options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--threads 33 on 2 cores (give at most 32, or leave it out)");
  }
}

// Where arithmetic and drives take about as long, what memory is used for matters most.
TEST(PlanElsewhere, MoreHostMemoryIsNotSlower) {
  for (const double clip : {0.0, 1.0}) {
    config::Options options = bf16_options(1);
    options.sequence_length = 4096;
    options.accumulate = 16;
    options.clip = clip;
    double before_s = std::numeric_limits<double>::infinity();
    for (const int64_t gib : {12, 16, 24}) {
      options.host_memory = gib * kGiB;
      const RunPlan run = planned(profile("rtx4090-4nvme"), llama(32, 4096), options);
      EXPECT_LE(run.predicted_step_s, 1.005 * before_s) << gib << " GiB, clip " << clip;
      before_s = run.predicted_step_s;
    }
  }
}

TEST(PlanElsewhere, RanksOfANodeShareItAndNodesDoNot) {
  config::Machine machine = profile("h200-8nvme");
  machine.device_count = 8;
  machine.host_bytes = 200 * kGiB;
  const model::Architecture architecture = llama(8, 4096);
  int64_t state_before = std::numeric_limits<int64_t>::max();
  for (const int64_t ranks : {1, 8, 64, 1024}) {
    SCOPED_TRACE(ranks);
    const RunPlan run = planned(machine, architecture, bf16_options(ranks));
    ASSERT_EQ(run.ranks.size(), static_cast<size_t>(ranks));
    const int64_t on_node = std::min<int64_t>(ranks, 8);
    EXPECT_EQ(run.threads, machine.cores / on_node);
    EXPECT_LE(bytes_of(run, Arena::kHost) * on_node + run.outside_bytes, machine.host_bytes);
    EXPECT_DOUBLE_EQ(run.rates.read_bytes_per_s,
                     machine.nvme_read_bytes_per_s / static_cast<double>(on_node));
    EXPECT_DOUBLE_EQ(run.rates.upload_bytes_per_s, machine.upload_bytes_per_s);
    int64_t state = 0;  // wherever it is
    for (const plan::LedgerLine& line : run.ranks.front().arenas.lines) {
      if (line.purpose == "optimizer state" || line.purpose == "optimizer state, resident") {
        state += line.bytes;
      }
    }
    EXPECT_LT(state, state_before);
    state_before = state;
    expect_sound(run);
  }
}

TEST(PlanElsewhere, WhatIsGivenComesBeforeTheProfile) {
  const config::Machine machine = profile("rtx4090-4nvme");
  config::Options options = bf16_options(1);
  options.host_memory = 16 * kGiB;
  options.device_memory = 8 * kGiB;
  options.threads = 3;
  RunPlan run = planned(machine, llama(16, 4096), options);
  EXPECT_EQ(run.host_budget, 16 * kGiB);
  EXPECT_LE(bytes_of(run, Arena::kDevice), 8 * kGiB);
  EXPECT_EQ(run.threads, 3);
  EXPECT_GT(bytes_of(run, Arena::kNvme), 0);

  options.device = config::Device::kCpu;
  options.device_memory = 0;
  EXPECT_EQ(bytes_of(planned(machine, llama(16, 4096), options), Arena::kDevice), 0);

  options.offload = config::Offload::kNone;
  EXPECT_THROW(planned(machine, llama(16, 4096), options), Error) << "no room in memory";
}

TEST(PlanElsewhere, DrivesAreThoseOfTheProfile) {
  config::Options options = bf16_options(1);
  options.host_memory = 16 * kGiB;
  const config::Machine machine = profile("rtx4090-4nvme");
  const RunPlan named = planned(machine, llama(16, 4096), options);
  options.nvme.clear();
  const RunPlan run = planned(machine, llama(16, 4096), options);
  EXPECT_GT(bytes_of(run, Arena::kNvme), 0);
  EXPECT_EQ(run.predicted_step_s, named.predicted_step_s);
  for (const RunPlan* each : {&run, &named}) {
    EXPECT_EQ(each->drives.count, 4);
    EXPECT_EQ(each->drives.rated_write_bytes, machine.nvme_rated_write_bytes);
  }
  config::Machine without = machine;
  without.nvme_read_bytes_per_s = without.nvme_write_bytes_per_s = 0;
  without.nvme_mixed_bytes_per_s = 0;
  EXPECT_EQ(bytes_of(planned(without, llama(2, 4096), options), Arena::kNvme), 0);
}

TEST(PlanElsewhere, ADeviceThatTheMachineLacksIsRefused) {
  config::Options options = bf16_options(1);
  options.device = config::Device::kCuda;
  RunFacts facts;
  try {
    plan_elsewhere(profile("small-2core"), options, facts);
    FAIL() << "planned for a device that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("small-2core has no such device"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace strata::train

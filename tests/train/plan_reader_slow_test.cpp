// SPDX-License-Identifier: Apache-2.0
// Ten questions about a plan that does not fit in memory, answered from its text alone: by finding
// the words, as a reader does. Each answer is what the planner says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "engine/base/units.h"
#include "engine/plan/refusal.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

using plan::Arena;

// A model whose state needs drives on the workstation, with little memory.
PlanBasis questioned_basis() {
  config::Options options = bf16_options(1);
  options.sequence_length = 512;
  options.host_memory = 2 * kGiB;
  options.device_memory = kGiB;
  options.nvme.clear();
  PlanBasis basis = basis_of(profile("rtx4090-4nvme"), llama(6, 1536), options);
  basis.facts.steps = 1000;
  return basis;
}

class PlanReader : public testing::Test {
 protected:
  // The first group of a pattern in a text.
  static std::string found(const std::string& text, const std::string& pattern) {
    std::smatch match;
    return std::regex_search(text, match, std::regex(pattern)) ? match[1].str()
                                                               : "not found: " + pattern + text;
  }
  // The lines of a memory.
  std::string lines_of(const std::string& tier) const {
    return found(plan_, "\n(" + tier + " [^\n]*(\n {9}[^\n]*)*)");
  }
  static std::string step_after(const PlanBasis& changed) {
    return format_duration(report_of(planned(changed)).simulated.step_s);
  }
  static std::string refusal_of(const PlanBasis& basis) {
    try {
      plan_run(basis.spec, basis.options, basis.facts);
    } catch (const plan::DoesNotFit& refusal) {
      return refusal.what();
    }
    return "it fits";
  }
  int64_t bytes_of(Arena arena, std::string_view purpose) const {
    int64_t sum = 0;
    for (const plan::LedgerLine& line : run_.ranks.front().arenas.lines) {
      const bool is_it =
          line.purpose == purpose || line.purpose == std::string(purpose) + ", resident";
      if (line.arena == arena && is_it) sum += line.bytes;
    }
    return sum;
  }

  const PlanBasis basis_ = questioned_basis();
  const RunPlan run_ = planned(basis_);
  const PlanReport report_ = report_of(run_);
  const std::string plan_ = plan_table(run_, report_);
};

TEST_F(PlanReader, WhereIsTheOptimizerState) {
  int64_t sum = 0;
  for (const auto& [tier, arena] :
       {std::pair("device", Arena::kDevice), {"host", Arena::kHost}, {"nvme", Arena::kNvme}}) {
    const int64_t bytes = bytes_of(arena, "optimizer state");
    const int64_t used = run_.ranks.front().arenas.bytes[static_cast<size_t>(arena)];
    if (bytes < used / 100) continue;  // too little for a line
    sum += bytes;
    EXPECT_EQ(found(lines_of(tier), "\n *(\\S+ \\S+)  optimizer state(\n|$)"), format_bytes(bytes));
  }
  EXPECT_NEAR(static_cast<double>(sum) / report_.parameters, 10, 0.3) << "bytes a parameter";
}

TEST_F(PlanReader, WhatLimitsAStepAndWhyItTakesLonger) {
  EXPECT_EQ(found(plan_, "limited by ([A-Za-z ]+), busy"), report_.bottleneck);
  const BusyPart longest = parts_of(report_.simulated).front();
  EXPECT_EQ(found(plan_, ", busy ([0-9]+)% of the time"),
            fmt::format("{:.0f}", 100 * longest.seconds / report_.simulated.step_s));
  const std::string name = longest.name;
  EXPECT_EQ(found(plan_, "parts that overlap: " + name + " ([0-9.]+ [a-z]+( [0-9]+ [a-z]+)?)"),
            format_duration(longest.seconds));
  const double waits_s = report_.simulated.step_s - longest.seconds;
  ASSERT_GT(waits_s, report_.simulated.step_s / 100) << "less has no line";
  EXPECT_EQ(found(plan_, name + " waits? ([^,\n]+)"), format_duration(waits_s));
}

// Recomputation does most of the forward again, which is a third of the arithmetic without it.
TEST_F(PlanReader, WhatDoesRecomputationCost) {
  EXPECT_EQ(found(plan_, "\n +([0-9.]+ m?s) of compute is for activations that the backward "),
            format_duration(report_.recompute_s));
  PlanBasis keeping = questioned_basis();
  keeping.options.activations = config::Activations::kKeep;
  const PlanReport kept = report_of(planned(keeping));
  EXPECT_EQ(kept.recompute_s, 0);
  EXPECT_NEAR(report_.recompute_s,
              report_.simulated.any_works_s(plan::kComputeWorks) -
                  kept.simulated.any_works_s(plan::kComputeWorks),
              0.05 * report_.recompute_s);
  EXPECT_LT(report_.recompute_s, report_.simulated.any_works_s(plan::kComputeWorks) / 4);
}

TEST_F(PlanReader, HowLongIsTheRunAndWhatIsSaved) {
  const double step_s = report_.simulated.step_s;
  EXPECT_EQ(found(plan_, "\nrun +1000 steps: ([^,]+),"), format_duration(1000 * step_s));
  EXPECT_EQ(found(plan_, "\n +([0-9]+) checkpoints? of "),
            fmt::format("{:.0f}", std::max(1.0, std::ceil(1000 * step_s / kCheckpointEveryS))));
  // The weights to the last bit of fp32, and two moments.
  EXPECT_EQ(found(plan_, " checkpoints? of ([^,]+), at the end"),
            format_drive_bytes(static_cast<double>(report_.checkpoint_bytes)));
  EXPECT_NEAR(static_cast<double>(report_.checkpoint_bytes) / report_.parameters, 12, 0.1);
}

TEST_F(PlanReader, HowFastAreTheDrives) {
  const config::Machine machine = profile("rtx4090-4nvme");
  EXPECT_EQ(found(plan_, "the drives of a machine read ([^/]+)/s"),
            format_drive_bytes(machine.nvme_read_bytes_per_s));
  EXPECT_EQ(found(plan_, "/s and write ([^/]+)/s, or"),
            format_drive_bytes(machine.nvme_write_bytes_per_s));
  EXPECT_EQ(found(plan_, ", or ([^/]+)/s in all while they do both"),
            format_drive_bytes(machine.nvme_mixed_bytes_per_s));
}

TEST_F(PlanReader, HowWornAreTheDrivesAndHowLongCouldTheyGoOn) {
  const config::Machine machine = profile("rtx4090-4nvme");
  const auto written = static_cast<double>(report_.totals.write_bytes);
  EXPECT_EQ(found(plan_, " written, ([^ ]+) of the drives' rated life"),
            format_share(1000 * written / machine.nvme_rated_write_bytes));
  EXPECT_EQ(found(plan_, "; new, ([0-9]+ drives) are rated"), "4 drives");
  EXPECT_EQ(found(plan_, "are rated for [^:]+: ([^ ]+) steps"),
            format_count(machine.nvme_rated_write_bytes / written));
}

TEST_F(PlanReader, HowMuchOfHostMemoryIsNotForTheRunsData) {
  EXPECT_EQ(found(lines_of("host"), "\n *(\\S+ \\S+)  program, libraries, tokens"),
            format_bytes(run_.outside_bytes));
}

TEST_F(PlanReader, WhatWouldChangeIt) {
  const std::string compared = compared_table(compare_plans(basis_, std::nullopt, nullptr));
  const auto step_of = [&](const std::string& row) {
    return found(compared, row + " {2,}(.+?) {2,}");
  };
  PlanBasis drive = questioned_basis();
  config::Machine& machine = drive.facts.machine;
  for (double* rate : {&machine.nvme_read_bytes_per_s, &machine.nvme_write_bytes_per_s,
                       &machine.nvme_mixed_bytes_per_s}) {
    *rate *= 5.0 / 4;
  }
  EXPECT_EQ(step_of("one more drive \\(5\\)"), step_after(drive));
  PlanBasis memory = questioned_basis();
  memory.options.host_memory *= 2;
  EXPECT_EQ(step_of("twice the host memory \\(4 GiB\\)"), step_after(memory));
  PlanBasis without = questioned_basis();
  without.options.offload = config::Offload::kHost;
  EXPECT_EQ(found(compared, "--offload host +does not fit: needs (\\S+ \\S+) of"),
            found(refusal_of(without), "needs at least (\\S+ [^ ,]+)"));
}

TEST_F(PlanReader, WhyIsLessMemoryRefused) {
  PlanBasis little = questioned_basis();
  little.options.offload = config::Offload::kHost;
  little.options.host_memory = kGiB;
  const std::string refusal = refusal_of(little);
  EXPECT_EQ(refusal.find("does not fit with --offload, which keeps state off drives: "), 0u)
      << refusal;
  EXPECT_EQ(found(refusal, "host memory: needs at least \\S+ GiB, has ([^(]+) \\("), "1 GiB");
  const std::string least =
      found(refusal, "with this --offload the least that fits is --host-memory ([0-9.]+[GM]iB)");
  ASSERT_TRUE(parse_bytes(least)) << refusal;
  const std::string without =
      found(refusal, "without --offload, --host-memory ([0-9.]+[GM]iB) with");
  ASSERT_TRUE(parse_bytes(without)) << refusal;
  PlanBasis free = little;
  free.options.offload = config::Offload::kAuto;
  free.options.host_memory = *parse_bytes(without);
  EXPECT_EQ(refusal_of(free), "it fits");
  little.options.host_memory = *parse_bytes(least);
  EXPECT_EQ(refusal_of(little), "it fits");
  little.options.host_memory -= 16 * kMiB;
  EXPECT_NE(refusal_of(little), "it fits");
}

}  // namespace
}  // namespace strata::train

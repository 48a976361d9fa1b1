// SPDX-License-Identifier: Apache-2.0
// Comparisons of plans: each row is the plan, or the refusal, of the options that it names.
#include "engine/train/plan_compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/refusal.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// A model whose state needs drives on the workstation.
PlanBasis large_basis() {
  config::Options options = bf16_options(1);
  options.sequence_length = 512;
  options.nvme = {"/a", "/b", "/c", "/d"};
  options.host_memory = 2 * kGiB;
  options.device_memory = kGiB;
  return basis_of(profile("rtx4090-4nvme"), llama(6, 1536), options);
}

// Its comparison, made once.
const std::vector<Compared>& large_rows() {
  static const std::vector<Compared> rows =
      compare_plans(large_basis(), profile("h200-8nvme"), nullptr);
  return rows;
}

const Compared& row_of(const std::vector<Compared>& rows, const std::string& name) {
  for (const Compared& row : rows) {
    if (row.name.starts_with(name)) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return rows.front();
}

TEST(PlanCompare, EachRowIsThePlanOfItsOptions) {
  const PlanBasis basis = large_basis();
  const std::vector<Compared>& rows = large_rows();
  const auto expect_step = [&](const std::string& name,
                               const std::function<void(PlanBasis&)>& change) {
    SCOPED_TRACE(name);
    PlanBasis changed = {basis.spec, basis.options, basis.facts};
    change(changed);
    const Compared& row = row_of(rows, name);
    ASSERT_EQ(row.refusal, "");
    EXPECT_EQ(row.report.simulated.step_s, report_of(planned(changed)).simulated.step_s);
  };
  expect_step("as planned", [](PlanBasis&) {});
  expect_step("--offload auto", [](PlanBasis&) {});
  expect_step("--activations recompute",
              [](PlanBasis& to) { to.options.activations = config::Activations::kRecompute; });
  expect_step("--optimizer-mode in-backward", [](PlanBasis& to) { to.options.clip = 0; });
  expect_step("twice the batch", [](PlanBasis& to) { to.options.accumulate *= 2; });
  expect_step("one more drive (5)", [](PlanBasis& to) {
    for (double* rate :
         {&to.facts.machine.nvme_read_bytes_per_s, &to.facts.machine.nvme_write_bytes_per_s,
          &to.facts.machine.nvme_mixed_bytes_per_s}) {
      *rate *= 5.0 / 4;
    }
  });
  expect_step("twice the host memory", [](PlanBasis& to) {
    to.options.host_memory = 2 * host_budget_of(to.options, to.facts);
    to.facts.limits.memory_available_bytes = to.options.host_memory;
  });
  expect_step("the machine h200-8nvme", [](PlanBasis& to) {
    to.options.device_memory = 0;
    to.options.device = config::Device::kAuto;
    plan_elsewhere(profile("h200-8nvme"), to.options, to.facts);
  });
}

TEST(PlanCompare, RowsOfThePlanAreMarked) {
  const std::vector<Compared>& rows = large_rows();
  EXPECT_TRUE(row_of(rows, "as planned").is_planned);
  EXPECT_TRUE(row_of(rows, "--offload auto").is_planned);
  EXPECT_FALSE(row_of(rows, "--offload host").is_planned) << "it does not fit";
  EXPECT_FALSE(row_of(rows, "twice the batch").is_planned);
  EXPECT_FALSE(row_of(rows, "twice the ranks").is_planned);
  EXPECT_FALSE(row_of(rows, "--optimizer-mode in-backward").is_planned);
  const std::string text = compared_table(rows);
  EXPECT_HAS(text, "\n= --offload auto ");
  EXPECT_HAS(text, "\n  --offload host ");
  EXPECT_HAS(text, "\n* as planned ");
  EXPECT_HAS(text, "\n= the plan above, which each of these options makes\n");
  EXPECT_HAS(text, "\n* the same things lie in the same places\n");
  EXPECT_HAS(text, " a step writes\n");
}

// The planner may choose what a narrower strategy asks for, so no such strategy is faster. On the
// device of the second basis there is room for activations or for all state, but not for both.
TEST(PlanCompare, NoNarrowerStrategyIsFaster) {
  config::Options options = bf16_options(1);
  options.accumulate = 8;
  options.device_memory = 15 * kGiB;
  const PlanBasis roomy = basis_of(profile("h200-8nvme"), llama(12, 2048), options);
  for (const PlanBasis* basis : {static_cast<const PlanBasis*>(nullptr), &roomy}) {
    const std::vector<Compared> rows =
        basis == nullptr ? large_rows() : compare_plans(*basis, std::nullopt, nullptr);
    const double planned_s = row_of(rows, "as planned").report.simulated.step_s;
    for (const Compared& row : rows) {
      const bool is_narrower = row.name.starts_with("--offload") || row.name.starts_with("--act");
      if (!is_narrower || !row.refusal.empty()) continue;
      EXPECT_GE(row.report.simulated.step_s, 0.99 * planned_s) << row.name;
    }
  }
}

TEST(PlanCompare, MoreDrivesAndMemoryAreNotSlower) {
  const std::vector<Compared>& rows = large_rows();
  const double planned_s = row_of(rows, "as planned").report.simulated.step_s;
  for (const char* name : {"one more drive", "twice the host memory", "twice the device memory"}) {
    EXPECT_LE(row_of(rows, name).report.simulated.step_s, 1.001 * planned_s) << name;
  }
}

TEST(PlanCompare, ARefusalSaysWhatTheStrategyWouldNeed) {
  const PlanBasis basis = large_basis();
  const std::vector<Compared>& rows = large_rows();
  const Compared& without = row_of(rows, "--offload host");
  config::Options options = basis.options;
  options.offload = config::Offload::kHost;
  try {
    plan_run(basis.spec, options, basis.facts);
    FAIL() << "it fits";
  } catch (const plan::DoesNotFit& refusal) {
    EXPECT_EQ(without.refusal, "needs " + format_bytes_up(refusal.shortages().front().need_bytes) +
                                   " of host memory, has 2 GiB");
  }
  // The row is that option's.
  config::Options on_device = basis.options;
  on_device.offload = config::Offload::kNone;
  EXPECT_THROW(plan_run(basis.spec, on_device, basis.facts), plan::DoesNotFit);
  on_device.device_memory = 64 * kGiB;
  const RunPlan held = plan_run(basis.spec, on_device, basis.facts);
  EXPECT_LT(held.ranks.front().arenas.bytes[static_cast<size_t>(plan::Arena::kHost)], kGiB / 4);
  // All state in one memory takes at least 16 bytes a parameter.
  const Compared& device = row_of(rows, "--offload none");
  const double parameters = row_of(rows, "as planned").report.parameters;
  const auto need = parse_bytes(device.refusal.substr(6, device.refusal.find("iB") + 2 - 6));
  ASSERT_TRUE(need) << device.refusal;
  EXPECT_HAS(device.refusal, " of device memory, has 1 GiB");
  EXPECT_GT(static_cast<double>(*need), 16 * parameters);
  const std::string text = compared_table(rows);
  EXPECT_HAS(text, "does not fit: needs ");
  EXPECT_HAS(text, "gradients are not clipped");
  EXPECT_EQ(compared_json(rows).items().size(), rows.size());
}

// The line of a row in the table.
std::string line_of(const std::string& table, const std::string& name) {
  const size_t at = table.find("\n  " + name);
  const size_t marked = std::min(table.find("\n* " + name), table.find("\n= " + name));
  if (std::min(at, marked) == table.npos) return "no line " + name;
  const size_t begin = std::min(at, marked) + 1;
  return table.substr(begin, table.find('\n', begin) - begin);
}

// A strategy that is not the plan says why not: what is short, or how much slower or faster it is.
TEST(PlanCompare, EachStrategySaysWhyItIsThePlanOrNot) {
  const std::vector<Compared>& rows = large_rows();
  const std::string text = compared_table(rows);
  const double planned = rows.front().report.tokens_per_s();
  size_t strategies = 0;
  for (const Compared& row : rows) {
    if (row.kind != ComparedKind::kStrategy) continue;
    ++strategies;
    const double percent = 100 * (row.report.tokens_per_s() / planned - 1);
    const std::string why =
        !row.refusal.empty() ? "does not fit: " + row.refusal
        : row.is_planned     ? "as planned: " + row.remark
        : percent > 0.5      ? fmt::format("{:.0f}% faster, but {}", percent, row.remark)
        : percent < -0.5     ? fmt::format("{:.0f}% slower: {}", -percent, row.remark)
                             : "as fast: " + row.remark;
    EXPECT_HAS(line_of(text, row.name), why);
  }
  EXPECT_GE(strategies, 5u);
  EXPECT_HAS(line_of(text, "--optimizer-mode in-backward"),
             "% faster, but gradients are not clipped");
}

// Everything fits in host memory, so drives have nothing to do.
TEST(PlanCompare, AChangeWithoutEffectSaysWhatLimitsAStep) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  const PlanBasis basis = basis_of(profile("small-2core"), llama(2, 512), options);
  const std::vector<Compared> rows = compare_plans(basis, std::nullopt, nullptr);
  const std::string limit = report_of(planned(basis)).bottleneck;
  const std::string text = compared_table(rows);
  for (const char* name : {"one more drive (2)", "twice the host memory"}) {
    EXPECT_HAS(line_of(text, name), "limited by " + limit + ", so as fast as planned");
  }
  EXPECT_EQ(line_of(text, "twice the batch").find("so as fast"), std::string::npos) << text;
  EXPECT_EQ(line_of(text, "as planned").find("so as fast"), std::string::npos) << text;
}

TEST(PlanCompare, AnotherMachineSaysItsMemory) {
  config::Options options = bf16_options(1);
  RunFacts facts;
  plan_elsewhere(profile("h200-8nvme"), options, facts);
  EXPECT_EQ(row_of(large_rows(), "the machine h200-8nvme").remark,
            "with " + format_bytes(host_budget_of(options, facts)) + " of host memory");
}

// With a number of steps, rows are about the whole run.
TEST(PlanCompare, ARunOfKnownLengthIsComparedAsAWhole) {
  PlanBasis basis = large_basis();
  basis.facts.steps = 1000;
  const std::vector<Compared> rows = compare_plans(basis, std::nullopt, nullptr);
  const std::string text = compared_table(rows);
  EXPECT_HAS(text, "the run takes");
  EXPECT_HAS(text, " wears drives\n");
  EXPECT_HAS(text,
             "\nthe run takes: for the same tokens, so twice the batch or the ranks has half ");
  EXPECT_EQ(row_of(rows, "twice the batch").report.run.steps, 500);
  EXPECT_EQ(row_of(rows, "as planned").report.run.steps, 1000);
  for (const char* name : {"as planned", "one more drive (5)", "twice the batch"}) {
    const Compared& row = row_of(rows, name);
    const std::string line = line_of(text, row.name);
    EXPECT_HAS(line, " " + format_duration(row.report.run.seconds) + " ");
    EXPECT_HAS(line, " " + format_share(row.report.run.drive_life));
  }
  // A fifth drive takes a fifth of what is written.
  const double worn = row_of(rows, "as planned").report.run.drive_life;
  EXPECT_NEAR(row_of(rows, "one more drive").report.run.drive_life, worn * 4 / 5, worn / 100);
}

TEST(PlanCompare, ARunThatDoesNotFitIsComparedToo) {
  PlanBasis basis = large_basis();
  basis.options.nvme.clear();
  basis.facts.nvme_free_bytes = 0;
  const std::vector<Compared> rows = compare_plans(basis, std::nullopt, nullptr);
  EXPECT_NE(rows.front().refusal, "");
  EXPECT_EQ(row_of(rows, "--nvme DIR").refusal, "") << "the machine has drives";
}

// A machine of which no drive is known gets that of a laptop.
TEST(PlanCompare, AFirstDriveIsAWhatIf) {
  const config::Machine laptop = profile("laptop-24gb");
  config::Machine machine = profile("small-2core");
  machine.nvme_count = machine.nvme_bytes = 0;
  machine.nvme_read_bytes_per_s = machine.nvme_write_bytes_per_s = 0;
  machine.nvme_mixed_bytes_per_s = machine.nvme_latency_s = machine.cpu_s_per_io_gb = 0;
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.host_memory = 2 * kGiB;
  PlanBasis basis = basis_of(machine, llama(12, 1536), options);
  ASSERT_TRUE(basis.options.nvme.empty());
  const std::vector<Compared> rows = compare_plans(basis, std::nullopt, nullptr);
  EXPECT_NE(rows.front().refusal, "") << "it needs a drive";
  basis.options.nvme = {"DIR"};
  basis.facts.nvme_free_bytes = laptop.nvme_bytes;
  basis.facts.machine.nvme_read_bytes_per_s = laptop.nvme_read_bytes_per_s;
  basis.facts.machine.nvme_write_bytes_per_s = laptop.nvme_write_bytes_per_s;
  basis.facts.machine.nvme_mixed_bytes_per_s = laptop.nvme_mixed_bytes_per_s;
  basis.facts.machine.nvme_latency_s = laptop.nvme_latency_s;
  basis.facts.machine.cpu_s_per_io_gb = laptop.cpu_s_per_io_gb;
  const double step_s = report_of(planned(basis)).simulated.step_s;
  for (const char* name : {"--nvme DIR", "a first drive (--nvme DIR)"}) {
    EXPECT_EQ(row_of(rows, name).refusal, "");
    EXPECT_EQ(row_of(rows, name).report.simulated.step_s, step_s) << name;
  }
  EXPECT_HAS(line_of(compared_table(rows), "a first drive (--nvme DIR)"),
             "as if it held 2.00 TB and moved 4.50 GB/s while it reads and writes");
}

TEST(PlanCompare, RanksAddTheirStages) {
  config::Machine machine = profile("h200-8nvme");
  machine.device_count = 8;
  int64_t calls = 0;
  const std::vector<Compared> rows =
      compare_plans(basis_of(machine, llama(4, 1024), bf16_options(8)), std::nullopt,
                    [&](int64_t number, int64_t) { EXPECT_EQ(number, ++calls); });
  EXPECT_EQ(calls, static_cast<int64_t>(rows.size()));
  EXPECT_EQ(row_of(rows, "--zero-stage 0").remark, "every rank has all state");
  EXPECT_EQ(row_of(rows, "--zero-stage 3").report.simulated.step_s,
            row_of(rows, "as planned").report.simulated.step_s);
}

}  // namespace
}  // namespace strata::train

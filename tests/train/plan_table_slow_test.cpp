// SPDX-License-Identifier: Apache-2.0
// What a plan says to people: known facts about the sizes and the arithmetic of training, a line
// and an explanation for everything in memory, and the totals of the whole run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

#include "engine/base/units.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_LACKS(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

// The bytes of all tiers whose purpose begins with `purpose`, without buffers.
double bytes_for(const RunPlan& run, const std::string& purpose) {
  int64_t sum = 0;
  for (const plan::LedgerLine& line : run.ranks.front().arenas.lines) {
    const std::string name = line.purpose;
    if (name.starts_with(purpose) && name.find("ring") == name.npos) sum += line.bytes;
  }
  return static_cast<double>(sum);
}

// The Llama of 70 thousand million parameters.
model::Architecture seventy_billion() {
  model::Architecture at = llama(80, 8192);
  at.kv_heads = 8;
  at.vocabulary = 128256;
  return at;
}

TEST(PlanFacts, TrainingTakes16BytesAParameterWithFp32State) {
  for (const Recipe recipe : {Recipe::kBf16, Recipe::kFp32}) {
    config::Options options = bf16_options(1);
    options.recipe = recipe;
    options.offload = config::Offload::kHost;
    const RunPlan run = planned(profile("small-2core"), llama(4, 1024), options);
    const PlanReport report = report_of(run);
    EXPECT_EQ(report.state_bytes_per_parameter, 16);
    const double held =
        bytes_for(run, "weights") + bytes_for(run, "optimizer state") + bytes_for(run, "gradient");
    EXPECT_NEAR(held / report.parameters, 16, 0.01) << "of the arenas";
    EXPECT_HAS(plan_table(run, report), "16 bytes a trained parameter: ");
    EXPECT_HAS(plan_table(run, report),
               recipe == Recipe::kFp32 ? "(fp32 weights 4, Adam's moments 8, fp32 gradients 4)\n"
                                       : "(bf16 weights 2, the rest of their fp32 values 2, Adam's "
                                         "moments 8, fp32 gradients 4)\n");
    EXPECT_HAS(plan_table(run, report, true),
               fmt::format("\nsearch   fastest of {} plans; it gave memory {}\n", run.candidates,
                           run.placement_name));
  }
}

TEST(PlanFacts, GroupsAndWhatIsFrozenAreNamed) {
  config::Options options = bf16_options(1);
  options.groups = {{.match = ".*q_proj.*", .lr_factor = 0.1, .weight_decay = 0.0},
                    {.match = ".*layernorm.*", .weight_decay = std::nullopt, .frozen = true}};
  options.freeze = "model.embed_tokens.weight";
  const RunPlan run = planned(profile("small-2core"), llama(2, 1024), options);
  const std::string text = plan_table(run, report_of(run));
  EXPECT_HAS(text, "\ngroup    \".*q_proj.*\": 2 tensors, 2.");
  EXPECT_HAS(text, "M parameters, learning rate x 0.1, weight decay 0\n");
  EXPECT_HAS(text, "\nfrozen   5 tensors, ");
  EXPECT_HAS(text, " parameters, such as model.embed_tokens.weight\n");
  EXPECT_LACKS(text, "layernorm.*");
}

TEST(PlanFacts, WeightsOf70BillionParametersInBf16Take140Gigabytes) {
  config::Machine machine = profile("small-2core");
  machine.host_bytes = 2048 * kGiB;
  const RunPlan run = planned(machine, seventy_billion(), bf16_options(1));
  EXPECT_NEAR(bytes_for(run, "weights") / 1e9, 140, 2);
  EXPECT_HAS(plan_table(run, report_of(run)),
             "70.6B parameters, bf16 weights, fp32 optimizer state");
}

// The forward is a third of the arithmetic of a step without recomputation, and recomputation does
// it again, except for the last product of each block and the head.
TEST(PlanFacts, RecomputationIsAFifthToAThirdMoreArithmetic) {
  const auto flops = [](config::Activations activations) {
    config::Options options = bf16_options(1);
    options.activations = activations;
    return report_of(planned(profile("h200-8nvme"), llama(32, 4096), options)).simulated.flops;
  };
  const double more = flops(config::Activations::kRecompute) / flops(config::Activations::kKeep);
  EXPECT_LE(more, 4.0 / 3);
  EXPECT_GT(more, 1 + 1.0 / 5);
}

// Memory that nothing else needs does not make buffers longer than all that passes through them.
TEST(PlanFacts, BuffersHoldNoMoreThanTwiceWhatPassesThroughThem) {
  config::Options options = bf16_options(2);
  options.sequence_length = 64;
  options.host_memory = 4 * kGiB;
  model::Architecture small = llama(8, 256);
  small.vocabulary = 2048;
  small.kv_heads = small.heads;
  const RunPlan run = planned(profile("small-2core"), small, options);
  const double parameters = report_of(run).parameters;
  double weights = 0;
  for (const plan::LedgerLine& line : run.ranks.front().arenas.lines) {
    if (line.purpose == "weights ring") weights += static_cast<double>(line.bytes);
  }
  EXPECT_GT(weights, 0) << "ranks share weights";
  EXPECT_LE(weights, 1.05 * 2 * 2 * parameters) << "2 bytes each; slots end on pages";
}

TEST(PlanTable, EverythingInMemoryHasANameForPeopleAndAnExplanation) {
  for (const char* machine : {"h200-8nvme", "rtx4090-4nvme", "small-2core"}) {
    for (const config::Activations activations :
         {config::Activations::kAuto, config::Activations::kKeep}) {
      config::Options options = bf16_options(1);
      options.sequence_length = 256;
      options.host_memory = 3 * kGiB;
      options.activations = activations;
      const RunPlan run = planned(profile(machine), llama(6, 1536), options);
      const std::string text = plan_table(run, report_of(run), true);
      for (const char* word : {"ring", "resident", "held", "spilled", "interior"}) {
        EXPECT_LACKS(text, std::string(" ") + word);
      }
      size_t lines = 0;
      size_t explanations = 0;
      for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1, ++lines) {
        explanations += text.compare(at, 13, "           ->") == 0;
      }
      EXPECT_EQ(lines, 2 * explanations) << text;
      EXPECT_LACKS(plan_table(run, report_of(run)), "->");
    }
  }
}

// The bytes of "  1.19 GiB  weights" or "device   21.57 GiB of 21.6 GiB".
double bytes_in(const std::string& line) {
  std::smatch match;
  const std::regex size("([0-9.]+) ([KMGT]i)?B");
  EXPECT_TRUE(std::regex_search(line, match, size)) << line;
  return static_cast<double>(*parse_bytes(match[1].str() + match[2].str() + "B"));
}

// What does not fit the device or the host is on the drives.
RunPlan plan_of_small_budgets() {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.host_memory = 2 * kGiB;
  options.device_memory = kGiB;
  return planned(profile("rtx4090-4nvme"), llama(6, 1536), options);
}

TEST(PlanTable, LinesOfATierAddUpToIt) {
  const RunPlan run = plan_of_small_budgets();
  std::istringstream lines(plan_table(run, report_of(run)));
  std::map<std::string, std::pair<double, double>> tiers;  // what is used, and the sum of lines
  std::string tier;
  for (std::string line; std::getline(lines, line);) {
    const std::string label = line.substr(0, line.find(' '));
    if (!label.empty()) tier = label;
    if (tier != "device" && tier != "host" && tier != "nvme") continue;
    if (!label.empty()) {
      tiers[tier].first = bytes_in(line);
    } else if (line.find("  free: ") == line.npos) {
      tiers[tier].second += bytes_in(line);
    }
  }
  EXPECT_EQ(tiers.size(), 3u);
  for (const auto& [name, bytes] : tiers) {
    EXPECT_NEAR(bytes.second, bytes.first, 0.01 * bytes.first) << name;
  }
}

// Where the step writes kept activations into memory of gradients, a line says how much.
TEST(PlanTable, KeptActivationsInMemoryOfGradientsHaveALine) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.offload = config::Offload::kHost;
  const RunPlan run = planned(profile("small-2core"), llama(8, 1024), options);
  const plan::Plan& plan = run.ranks.front();
  std::map<int64_t, int64_t> kept;  // bytes by offset
  const plan::Program& step = plan.program(plan::ProgramName::kStep);
  for (const plan::Op& op : step.ops) {
    if (!op.keeps) continue;
    for (const plan::Access& access : step.accesses_of(op)) {
      for (const plan::LedgerLine& line : plan.arenas.lines) {
        const bool is_there = line.arena == access.arena && access.offset >= line.offset &&
                              access.offset < line.offset + line.bytes;
        if (is_there && line.purpose == "gradients, held") kept[access.offset] = access.bytes;
      }
    }
  }
  int64_t bytes = 0;
  for (const auto& [offset, size] : kept) bytes += round_up(size, kPageBytes);
  ASSERT_GT(bytes, 0) << "it needs other options";
  EXPECT_HAS(plan_table(run, report_of(run)),
             fmt::format("{:>20}  kept activations, where gradients lie at other times (counted "
                         "there)\n",
                         format_bytes(bytes)));
}

TEST(PlanTable, TheHostLineIsAllOfHostMemory) {
  const RunPlan run = plan_of_small_budgets();
  const std::string text = plan_table(run, report_of(run));
  const int64_t arena = run.ranks.front().arenas.bytes[static_cast<size_t>(plan::Arena::kHost)];
  EXPECT_HAS(text, format_bytes(arena + run.outside_bytes) + " of 2 GiB\n");
  EXPECT_HAS(text, format_bytes(run.outside_bytes) + "  program, libraries, tokens, checksums");
  EXPECT_LACKS(text, "outside");
  for (const char* buffer : {" between host and device\n", " between drives and host\n"}) {
    EXPECT_HAS(text, buffer);
  }
}

// A step of 12 s: the drives move for 10 s, in 4 of them both ways.
plan::SimulationResult twelve_seconds() {
  using namespace plan;
  SimulationResult result;
  result.step_s = 12;
  result.working_s[kDrivesRead | kDrivesWrite | kComputeWorks] = 4;
  result.working_s[kDrivesRead | kComputeWorks] = 1;
  result.working_s[kDrivesWrite | kOptimizerWorks] = 5;
  result.working_s[kComputeWorks | kLinkMoves] = 2;
  return result;
}

TEST(PlanTable, TheStepSaysWhyItIsLongerThanItsLongestPart) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  const RunPlan run = planned(profile("small-2core"), llama(4, 1024), options);
  PlanReport report = report_of(run);
  report.simulated = twelve_seconds();
  const std::string text = plan_table(run, report);
  EXPECT_HAS(text,
             "parts that overlap: NVMe drives 10 s (1 s only reads, 5 s only writes, 4 s both), "
             "compute 7 s, optimizer 5 s, "
             "device link 2 s\n");
  EXPECT_HAS(text, "NVMe drives wait 2 s, meanwhile: compute 2 s, device link 2 s\n");
  EXPECT_HAS(text, "compute waits 5 s, meanwhile: NVMe drives 5 s, optimizer 5 s\n");
}

TEST(PlanReport, TheDrivesAreBusyWhileEitherDirectionMoves) {
  using namespace plan;
  SimulationResult result = twelve_seconds();
  EXPECT_EQ(bottleneck_of(result), "NVMe drives");
  result.working_s[kComputeWorks] = 4;  // 11 s: more than the drives' 10, less than 5 + 9
  EXPECT_EQ(bottleneck_of(result), "compute");
  result.step_s = 20;
  EXPECT_EQ(bottleneck_of(result), "compute and NVMe drives");
  result = {};
  result.working_s[kDrivesWrite] = 9;
  result.working_s[kDrivesRead] = 0.5;
  EXPECT_EQ(bottleneck_of(result), "NVMe writes");
  std::swap(result.working_s[kDrivesWrite], result.working_s[kDrivesRead]);
  EXPECT_EQ(bottleneck_of(result), "NVMe reads");
  result.reads_files = result.uses_nvme = true;
  EXPECT_EQ(bottleneck_of(result), "NVMe reads");
  result.uses_nvme = false;
  EXPECT_EQ(bottleneck_of(result), "reads of the model's files");
  EXPECT_STREQ(parts_of(result).front().name, "model files");
}

TEST(PlanTable, TotalsAreThoseOfAllSteps) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.host_memory = 2 * kGiB;
  options.device_memory = kGiB;
  PlanBasis basis = basis_of(profile("rtx4090-4nvme"), llama(6, 1536), options);
  const RunPlan unknown = planned(basis);
  EXPECT_HAS(plan_table(unknown, report_of(unknown)), "run      not known (give --steps N");
  EXPECT_TRUE(plan_json(unknown, report_of(unknown)).find("run")->is_null());
  basis.facts.steps = 1000;
  const RunPlan run = planned(basis);
  const PlanReport report = report_of(run);
  EXPECT_EQ(report.run.seconds, 1000 * report.simulated.step_s);
  EXPECT_EQ(report.run.write_bytes, 1000.0 * static_cast<double>(report.totals.write_bytes));
  EXPECT_GT(report.run.drive_life, 0);
  EXPECT_DOUBLE_EQ(report.run.drive_life, report.run.write_bytes / 28e15) << "of the profile";
  const std::string text = plan_table(run, report);
  EXPECT_HAS(text, "run      1000 steps: " + format_duration(report.run.seconds));
  EXPECT_HAS(text, format_drive_bytes(report.run.write_bytes) + " written, ");
  EXPECT_HAS(text, "4 drives are rated for 28.0 PB: ");
  EXPECT_LACKS(text, "it wears them out");
  basis.facts.done_steps = 990;
  const RunPlan resumed = planned(basis);
  EXPECT_EQ(report_of(resumed).run.seconds, 10 * report_of(resumed).simulated.step_s);
  EXPECT_HAS(plan_table(resumed, report_of(resumed)), "run      10 left of 1000 steps: ");
  basis.facts.done_steps = 1000;
  const RunPlan over = planned(basis);
  EXPECT_HAS(plan_table(over, report_of(over)), "run      nothing is left of 1000 steps");
  basis.facts.done_steps = 0;
  basis.facts.steps = static_cast<int64_t>(1.5 * 1000 / report.run.drive_life);
  const RunPlan longer = planned(basis);
  EXPECT_HAS(plan_table(longer, report_of(longer)),
             "150% of the drives' rated life: it wears them out");
}

// The JSON has the words of the table, each once.
TEST(PlanTable, JsonHasTheNamesOfTheTable) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.host_memory = 3 * kGiB;
  const RunPlan run = planned(profile("rtx4090-4nvme"), llama(6, 1536), options);
  const PlanReport report = report_of(run);
  const std::string table = plan_table(run, report, true);
  const config::Json json = plan_json(run, report);
  int64_t names = 0;
  for (const char* tier : {"device", "host", "nvme"}) {
    const config::Json* purposes = json.find(tier)->find("purposes");
    for (const config::JsonMember& member : purposes->members()) {
      EXPECT_HAS(table, "  " + member.name);
      ++names;
    }
  }
  EXPECT_GE(names, 8);
}

TEST(PlanTable, OneOfAThingIsSingular) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.accumulate = 1;
  PlanBasis basis = basis_of(profile("small-2core"), llama(4, 1024), options);
  basis.facts.steps = 1;
  const RunPlan run = planned(basis);
  const std::string text = plan_table(run, report_of(run));
  EXPECT_HAS(text, "run      1 step: ");
  EXPECT_HAS(text, "batch    256 tokens: 1 sequence of 256, 1 at a time\n");
}

TEST(PlanTable, BuffersAreBetweenMemoriesThatThePlanHas) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  options.device_memory = kGiB;
  options.offload = config::Offload::kHost;
  const RunPlan run = planned(profile("rtx4090-4nvme"), llama(6, 1536), options);
  EXPECT_EQ(run.ranks.front().arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)], 0);
  const std::string text = plan_table(run, report_of(run), true);
  EXPECT_HAS(text, " between host and device\n");
  EXPECT_LACKS(text, "drives and host");
}

TEST(PlanTable, BudgetsThatNoOptionSetsSayWhatTheyLeave) {
  config::Options options = bf16_options(1);
  options.sequence_length = 256;
  RunPlan run = planned(profile("rtx4090-4nvme"), llama(6, 1536), options);
  std::string text = plan_table(run, report_of(run));
  EXPECT_HAS(text, format_bytes(run.host_budget) +
                       " (85% of the available memory; --host-memory sets it)\n");
  EXPECT_HAS(text, " of 21.6 GiB (90% of the device's memory; --device-memory sets it)\n");
  options.host_memory = 2 * kGiB;
  options.device_memory = kGiB;
  PlanBasis basis = basis_of(profile("rtx4090-4nvme"), llama(6, 1536), options);
  basis.facts.nvme_free_bytes = 100 * kGiB;
  run = planned(basis);
  text = plan_table(run, report_of(run));
  EXPECT_HAS(text, " of 2 GiB\n");
  EXPECT_HAS(text, " of 1 GiB\n");
  EXPECT_HAS(text, " of 95 GiB (95% of the free space)\n");
}

TEST(PlanTable, WhatIsOfARankSaysSo) {
  config::Machine machine = profile("h200-8nvme");
  machine.device_count = 8;
  PlanBasis basis = basis_of(machine, llama(8, 4096), bf16_options(8));
  basis.facts.steps = 100;
  const RunPlan run = planned(basis);
  const std::string text = plan_table(run, report_of(run));
  const int64_t host = run.ranks.front().arenas.bytes[static_cast<size_t>(plan::Arena::kHost)];
  EXPECT_HAS(text, "\nhost     " + format_bytes(host) + " for each rank\n");
  EXPECT_HAS(text, format_bytes(8 * host + run.outside_bytes) + " of " +
                       format_bytes(run.host_budget) +
                       " for the 8 ranks of a machine (85% of the available memory");
  EXPECT_HAS(text, " on each of 8 ranks");
  EXPECT_HAS(text, "run      100 steps of all ranks: ");
  EXPECT_HAS(text, " for all ranks, at the end");
  EXPECT_HAS(text, " tokens/s of all ranks; limited by ");
  EXPECT_HAS(text, "parts that overlap, on each rank: ");
  EXPECT_HAS(text, "--host-memory sets it)\n" +
                       fmt::format("{:>20}  program, libraries", format_bytes(run.outside_bytes)));
}

TEST(Shares, HaveTwoDigits) {
  EXPECT_EQ(format_share(0), "0%");
  EXPECT_EQ(format_share(1e-6), "less than 0.001%");
  EXPECT_EQ(format_share(0.0030), "0.30%");
  EXPECT_EQ(format_share(0.049), "4.9%");
  EXPECT_EQ(format_share(0.124), "12%");
  EXPECT_EQ(format_share(1.5), "150%");
}

TEST(DriveBytes, AreInDecimalUnits) {
  EXPECT_EQ(format_drive_bytes(0), "0 B");
  EXPECT_EQ(format_drive_bytes(5.26e12), "5.26 TB");
  EXPECT_EQ(format_drive_bytes(357.6e12), "358 TB");
  EXPECT_EQ(format_drive_bytes(1357e12), "1.36 PB");
}

}  // namespace
}  // namespace strata::train

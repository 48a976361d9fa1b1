// SPDX-License-Identifier: Apache-2.0
// --mesh auto takes the fastest mesh that fits, and its row is that of its plan.
#include "engine/train/mesh_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/units.h"
#include "engine/config/mesh_option.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

// Ranks on a few machines of few cores each, between which the network is slow.
PlanBasis basis_with(int64_t ranks, int64_t ranks_on_node, double network_bytes_per_s) {
  config::Options options = bf16_options(ranks);
  options.sequence_length = 256;
  options.accumulate = 2;
  options.mesh = {"auto"};
  PlanBasis basis = basis_of(profile("small-2core"), llama(6, 512), options);
  basis.facts.ranks_on_node = ranks_on_node;
  basis.facts.machine.network_bytes_per_s = network_bytes_per_s;
  return basis;
}

std::vector<std::string> names_of(const MeshChoice& choice) {
  std::vector<std::string> names;
  for (const Compared& one : choice.compared) names.push_back(one.name);
  return names;
}

TEST(MeshChoice, TheFastestOfAllMeshesIsTaken) {
  const PlanBasis basis = basis_with(4, 4, 1e9);
  const MeshChoice choice = choose_mesh(basis, {});
  std::vector<std::string> names = names_of(choice);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"pipeline=4", "shard=2,pipeline=2", "shard=2,tensor=2",
                                             "shard=4", "tensor=2,pipeline=2", "tensor=4"}));
  for (const Compared& one : choice.compared) {
    EXPECT_LE(one.report.tokens_per_s(), choice.compared.front().report.tokens_per_s()) << one.name;
  }
  EXPECT_EQ(choice.compared.front().name, config::mesh_text(choice.options));
  EXPECT_TRUE(choice.options.mesh.empty());
  EXPECT_EQ(choice.options.step_samples(), basis.options.step_samples());
  PlanBasis alone = {basis.spec, choice.options, basis.facts};
  EXPECT_EQ(report_of(planned(alone)).simulated.step_s,
            choice.compared.front().report.simulated.step_s);
}

// Stages send outputs alone, copies within a machine keep gathers there.
TEST(MeshChoice, ASlowNetworkIsAvoided) {
  const MeshChoice slow = choose_mesh(basis_with(4, 2, 1e7), {});
  const MeshChoice fast = choose_mesh(basis_with(4, 2, 1e11), {});
  EXPECT_NE(slow.options.pipeline_ranks, 1) << mesh_line(slow.compared);
  const auto step_of_all = [](const MeshChoice& choice) {
    const auto all = std::ranges::find(choice.compared, "shard=4", &Compared::name);
    return all->report.simulated.step_s / choice.compared.front().report.simulated.step_s;
  };
  EXPECT_GT(step_of_all(slow), 2 * step_of_all(fast));
  EXPECT_NE(std::ranges::find(slow.compared, "shard=2,replicate=2", &Compared::name),
            slow.compared.end());
}

TEST(MeshChoice, ContextRanksDivideLongSequencesAlone) {
  PlanBasis basis = basis_with(4, 4, 1e9);
  basis.options.sequence_length = 8192;
  const MeshChoice choice = choose_mesh(basis, {});
  const std::vector<std::string> names = names_of(choice);
  EXPECT_NE(std::ranges::find(names, "shard=2,context=2"), names.end());
  EXPECT_EQ(std::ranges::find(names, "context=4"), names.end()) << "2048 tokens each";
  for (const Compared& one : choice.compared) {
    EXPECT_EQ(one.report.tokens, choice.compared.front().report.tokens) << one.name;
  }
}

TEST(MeshChoice, TextsThatARunContinuesNeedWholeSequences) {
  PlanBasis basis = basis_with(4, 4, 1e9);
  basis.options.sequence_length = 8192;
  const auto divides = [&](const char* prompts) {
    basis.options.sample_prompts = prompts;
    const std::vector<std::string> names = names_of(choose_mesh(basis, {}));
    return std::ranges::find(names, "shard=2,context=2") != names.end();
  };
  EXPECT_TRUE(divides("off"));
  EXPECT_FALSE(divides("prompts.txt"));
}

// Groups of four would end within machines of six.
TEST(MeshChoice, TensorAndContextRanksLieWithinMachines) {
  PlanBasis basis = basis_with(12, 6, 1e9);
  basis.options.sequence_length = 16384;
  for (const std::string& name : names_of(choose_mesh(basis, {}))) {
    EXPECT_EQ(name.find("tensor=4"), std::string::npos) << name;
    EXPECT_EQ(name.find("context=4"), std::string::npos) << name;
  }
}

// As a run does that was resumed: its options are of a mesh, and have its micro-batches.
TEST(MeshChoice, AStepKeepsItsSamplesWhateverMeshItHad) {
  PlanBasis basis = basis_with(4, 4, 1e9);
  basis.options.tensor_ranks = 2;
  const MeshChoice choice = choose_mesh(basis, {});
  EXPECT_EQ(choice.options.step_samples(), basis.options.step_samples());
  EXPECT_NE(std::ranges::find(choice.compared, "shard=4", &Compared::name), choice.compared.end());
}

// As many are planned whole as take about as long as the fastest, and these come first.
TEST(MeshChoice, RoughPlansAreNotBetterThanWholeOnes) {
  const MeshChoice choice = choose_mesh(basis_with(8, 8, 1e9), {});
  const auto rough = std::ranges::find(choice.compared, true, &Compared::is_rough);
  EXPECT_NE(rough, choice.compared.begin());
  EXPECT_LE(rough - choice.compared.begin(), 4);
  for (auto one = rough; one != choice.compared.end(); ++one) {
    EXPECT_TRUE(one->is_rough);
    if (!one->refusal.empty()) continue;
    EXPECT_LE(one->report.tokens_per_s(), choice.compared.front().report.tokens_per_s());
  }
}

TEST(MeshChoice, TheLineNamesTheNextBest) {
  const MeshChoice choice = choose_mesh(basis_with(2, 2, 1e9), {});
  const std::string line = mesh_line(choice.compared);
  EXPECT_TRUE(line.starts_with("mesh     " + choice.compared[0].name + ", the fastest of 3 that"))
      << line;
  EXPECT_NE(line.find("; the next best, " + choice.compared[1].name + ", is "), std::string::npos)
      << line;
  EXPECT_EQ(mesh_line(choose_mesh(basis_with(1, 1, 1e9), {}).compared),
            "mesh     shard=1, the only one\n");
}

// The plan is the first row of its section, whose remark would be about itself.
TEST(MeshChoice, BesideMeshesThePlanIsComparedWithItself) {
  const PlanBasis basis = basis_with(2, 2, 1e9);
  const MeshChoice choice = choose_mesh(basis, {});
  std::vector<Compared> rows = choice.compared;
  for (Compared& row : compare_plans({basis.spec, choice.options, basis.facts}, std::nullopt, {})) {
    rows.push_back(std::move(row));
  }
  const std::string table = compared_table(rows);
  const std::string line = table.substr(table.find("* as planned"));
  EXPECT_EQ(line.substr(0, line.find('\n')).find("limited by"), std::string::npos) << table;
  EXPECT_NE(table.find("so as fast as planned"), std::string::npos) << table;
}

// The refusal is that of the first mesh, which shares all state.
TEST(MeshChoice, AModelThatNoMeshFitsIsRefused) {
  PlanBasis basis = basis_with(2, 2, 1e9);
  basis.options.host_memory = 64 * kMiB;
  const MeshChoice choice = choose_mesh(basis, {});
  EXPECT_FALSE(choice.compared.front().is_planned);
  EXPECT_NE(choice.compared.front().refusal.find("host memory"), std::string::npos);
  EXPECT_EQ(config::mesh_text(choice.options), "shard=2");
}

}  // namespace
}  // namespace strata::train

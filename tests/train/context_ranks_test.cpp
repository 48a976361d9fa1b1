// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks share every sequence: the losses of runs whose ranks do not, on the same
// samples, and checkpoints with which either goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "tests/train/training_run.h"

namespace strata::train {
namespace {

struct Mesh {
  int64_t ranks = 1;
  int64_t context = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t zero_stage = 3;
  int64_t shard_ranks = 0;
  config::ContextExchange exchange = config::ContextExchange::kKeys;
};

void PrintTo(const Mesh& mesh, std::ostream* out) {
  *out << mesh.ranks << " ranks, " << mesh.context << " context ranks, " << mesh.tensor
       << " tensor ranks, " << mesh.pipeline << " stages, stage " << mesh.zero_stage
       << (mesh.exchange == config::ContextExchange::kHeads ? ", heads" : ", keys");
}

// All have two groups with data of their own.
constexpr Mesh kAlone = {.ranks = 2};
constexpr Mesh kShared[] = {
    {.ranks = 4, .context = 2},
    {.ranks = 4, .context = 2, .zero_stage = 1, .shard_ranks = 1},
    {.ranks = 8, .context = 4, .zero_stage = 2, .shard_ranks = 2},
    {.ranks = 8, .context = 2, .tensor = 2},
    {.ranks = 4, .context = 2, .exchange = config::ContextExchange::kHeads}};

class ContextRanks : public Training {
 protected:
  explicit ContextRanks(const std::string& model = "mha_tied_llama3") : Training(model) {
    write_tokens(64);
    options_.recipe = Recipe::kFp32;
    options_.lr = 1e-3;
    options_.eval_every = 2;
    options_.checkpoint_every = 2;
    options_.keep_checkpoints = 9;
    options_.accumulate = 2;
  }

  // The losses of a run up to step 4, the held-out one last.
  std::vector<double> losses_on(const Mesh& mesh, const std::string& from = "") {
    options_.ranks = mesh.ranks;
    options_.context_ranks = mesh.context;
    options_.tensor_ranks = mesh.tensor;
    options_.pipeline_ranks = mesh.pipeline;
    options_.zero_stage = mesh.zero_stage;
    options_.shard_ranks = mesh.shard_ranks;
    options_.context_exchange = mesh.exchange;
    options_.steps = 4;
    job_.resume_from = from;
    steps_.clear();
    const TrainResult result = run();
    hash_ = result.state_hash;
    std::vector<double> losses;
    for (const StepMetrics& step : steps_) losses.push_back(step.loss);
    losses.push_back(result.held_out_loss.value_or(0));
    return losses;
  }

  // Of a step, out of the way of later runs.
  std::string kept_checkpoint(int64_t step, const std::string& name) const {
    const std::string path = directory_ / name;
    std::filesystem::rename(checkpoint::checkpoint_path(directory_ / "checkpoints", step), path);
    return path;
  }

  static void expect_close(const std::vector<double>& losses, std::vector<double> expected) {
    expected.erase(expected.begin(), expected.end() - std::ssize(losses));
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i] / expected[i], 1.0, 1e-5) << i;
    }
  }

  uint64_t hash_ = 0;
};

TEST_F(ContextRanks, HaveTheLossesOfOthers) {
  const std::vector<double> expected = losses_on(kAlone);
  for (const Mesh& mesh : kShared) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    expect_close(losses_on(mesh), expected);
    EXPECT_EQ(steps_.back().tokens, 4 * options_.sequence_length);
  }
}

TEST_F(ContextRanks, GoOnWithTheSameBits) {
  for (const Mesh& mesh : kShared) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    losses_on(mesh);
    const uint64_t whole = hash_;
    const std::string from = kept_checkpoint(2, "from");
    losses_on(mesh, from);
    EXPECT_EQ(hash_, whole);
    std::filesystem::remove_all(from);
  }
}

// Each with the checkpoint of each of the others.
TEST_F(ContextRanks, GoOnFromAnyMesh) {
  const std::vector<double> expected = losses_on(kAlone);
  std::vector<std::string> from = {kept_checkpoint(2, "from-alone")};
  std::vector<Mesh> meshes = {kAlone};
  for (const Mesh& mesh : kShared) {
    losses_on(mesh);
    from.push_back(kept_checkpoint(2, "from-" + std::to_string(from.size())));
    meshes.push_back(mesh);
  }
  for (const Mesh& mesh : meshes) {
    for (const std::string& path : from) {
      SCOPED_TRACE(testing::PrintToString(mesh) + " " + path);
      const std::vector<double> losses = losses_on(mesh, path);
      ASSERT_EQ(losses.size(), 3u);
      expect_close(losses, expected);
    }
  }
}

TEST_F(ContextRanks, HaveTheBitsOfOneStageInAPipeline) {
  const std::vector<double> expected = losses_on(kShared[0]);
  const uint64_t whole = hash_;
  EXPECT_EQ(losses_on({.ranks = 8, .context = 2, .pipeline = 2}), expected);
  EXPECT_EQ(hash_, whole);
  const std::vector<double> swapped = losses_on(kShared[4]);
  const uint64_t other = hash_;
  Mesh staged = kShared[4];
  staged.ranks = 8;
  staged.pipeline = 2;
  EXPECT_EQ(losses_on(staged), swapped);
  EXPECT_EQ(hash_, other);
}

TEST_F(ContextRanks, HaveTheBitsOfOneWindowInTwo) {
  for (const Mesh& mesh : {kShared[0], kShared[3], kShared[4]}) {
    options_.pipeline_windows = 1;
    const std::vector<double> expected = losses_on(mesh);
    const uint64_t whole = hash_;
    options_.pipeline_windows = 2;
    EXPECT_EQ(losses_on(mesh), expected);
    EXPECT_EQ(hash_, whole);
  }
}

class ContextRanksOfFamily : public ContextRanks, public testing::WithParamInterface<const char*> {
 protected:
  ContextRanksOfFamily() : ContextRanks(GetParam()) {}
};

TEST_P(ContextRanksOfFamily, HaveTheLossesOfOthers) {
  expect_close(losses_on(kShared[0]), losses_on(kAlone));
}

INSTANTIATE_TEST_SUITE_P(, ContextRanksOfFamily,
                         testing::Values("qwen3_windows", "qwen2_windows", "gpt2_bare", "phi3",
                                         "gemma2_untied", "llama_biases", "gqa_untied"));

}  // namespace
}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks slice the blocks: the losses of runs whose ranks do not, on the same samples,
// and checkpoints with which either goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "tests/train/training_run.h"

namespace strata::train {
namespace {

struct Mesh {
  int64_t ranks = 1;
  int64_t tensor = 1;
  int64_t zero_stage = 3;
  int64_t shard_ranks = 0;
};

void PrintTo(const Mesh& mesh, std::ostream* out) {
  *out << mesh.ranks << " ranks, " << mesh.tensor << " tensor ranks, stage " << mesh.zero_stage;
}

// All have two ranks with data of their own.
constexpr Mesh kAlone = {.ranks = 2};
constexpr Mesh kSliced[] = {{.ranks = 4, .tensor = 2},
                            {.ranks = 4, .tensor = 2, .zero_stage = 0},
                            {.ranks = 4, .tensor = 2, .zero_stage = 1, .shard_ranks = 1},
                            {.ranks = 8, .tensor = 4, .zero_stage = 2}};

class TensorRanks : public Training {
 protected:
  explicit TensorRanks(const std::string& model = "mha_tied_llama3") : Training(model) {
    write_tokens(64);
    options_.recipe = Recipe::kFp32;
    options_.lr = 1e-3;
    options_.eval_every = 2;
    options_.checkpoint_every = 2;
    options_.keep_checkpoints = 9;
  }

  // The losses of a run up to step 4, the held-out one last.
  std::vector<double> losses_on(const Mesh& mesh, const std::string& from = "") {
    options_.ranks = mesh.ranks;
    options_.tensor_ranks = mesh.tensor;
    options_.zero_stage = mesh.zero_stage;
    options_.shard_ranks = mesh.shard_ranks;
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

TEST_F(TensorRanks, HaveTheLossesOfOthers) {
  const std::vector<double> expected = losses_on(kAlone);
  for (const Mesh& mesh : kSliced) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    expect_close(losses_on(mesh), expected);
    EXPECT_EQ(steps_.back().tokens, 2 * options_.sequence_length);
  }
}

TEST_F(TensorRanks, GoOnWithTheSameBits) {
  for (const Mesh& mesh : kSliced) {
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
TEST_F(TensorRanks, GoOnFromAnyMesh) {
  const std::vector<double> expected = losses_on(kAlone);
  std::vector<std::string> from = {kept_checkpoint(2, "from-alone")};
  std::vector<Mesh> meshes = {kAlone};
  for (const Mesh& mesh : kSliced) {
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

class TensorRanksOfFamily : public TensorRanks, public testing::WithParamInterface<const char*> {
 protected:
  TensorRanksOfFamily() : TensorRanks(GetParam()) {}
};

TEST_P(TensorRanksOfFamily, HaveTheLossesOfOthers) {
  expect_close(losses_on(kSliced[0]), losses_on(kAlone));
}

// Of some the files have transposes, or q, k and v in one matrix.
INSTANTIATE_TEST_SUITE_P(, TensorRanksOfFamily,
                         testing::Values("qwen3_windows", "qwen2_windows", "gpt2_bare", "phi3",
                                         "gemma2_untied", "llama_biases", "gqa_untied", "olmo2"));

}  // namespace
}  // namespace strata::train

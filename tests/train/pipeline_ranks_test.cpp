// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks divide the blocks: the bits of runs whose ranks do not, and checkpoints with
// which either goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "tests/train/training_run.h"

namespace strata::train {
namespace {

struct Mesh {
  int64_t data_ranks = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t chunks = 1;
  int64_t windows = 0;
  config::PipelineSchedule schedule = config::PipelineSchedule::k1f1b;
};

void PrintTo(const Mesh& mesh, std::ostream* out) {
  *out << mesh.data_ranks << " data ranks, " << mesh.tensor << " tensor, " << mesh.pipeline
       << " stages, " << mesh.chunks << " chunks, " << mesh.windows << " windows";
}

constexpr Mesh kStaged[] = {
    {.windows = 4},
    {.pipeline = 2},
    {.pipeline = 3, .windows = 2},
    {.pipeline = 2, .windows = 4, .schedule = config::PipelineSchedule::kGpipe},
    {.pipeline = 2, .windows = 4, .schedule = config::PipelineSchedule::kZeroBubble},
    {.tensor = 2, .pipeline = 2, .schedule = config::PipelineSchedule::kZeroBubble},
    {.data_ranks = 2, .pipeline = 2},
    {.tensor = 2, .pipeline = 3}};

class PipelineRanks : public Training {
 protected:
  explicit PipelineRanks(const std::string& model = "qwen3_windows") : Training(model) {
    write_tokens(64);
    options_.lr = 1e-3;
    options_.accumulate = 4;
    options_.eval_every = 2;
    options_.checkpoint_every = 2;
    options_.keep_checkpoints = 9;
  }

  struct Result {
    std::vector<double> losses;  // the held-out one last
    std::vector<double> norms;
    uint64_t hash = 0;
    bool operator==(const Result&) const = default;
  };

  // A run up to step 4.
  Result run_on(const Mesh& mesh, const std::string& from = "") {
    options_.ranks = mesh.data_ranks * mesh.tensor * mesh.pipeline;
    options_.tensor_ranks = mesh.tensor;
    options_.pipeline_ranks = mesh.pipeline;
    options_.pipeline_chunks = mesh.chunks;
    options_.pipeline_windows = mesh.windows;
    options_.pipeline_schedule = mesh.schedule;
    options_.steps = 4;
    job_.resume_from = from;
    steps_.clear();
    const TrainResult result = run();
    Result bits = {.losses = {}, .norms = {}, .hash = result.state_hash};
    for (const StepMetrics& step : steps_) {
      bits.losses.push_back(step.loss);
      bits.norms.push_back(step.grad_norm);
    }
    bits.losses.push_back(result.held_out_loss.value_or(0));
    return bits;
  }

  static Mesh flat(Mesh mesh) {
    mesh.pipeline = mesh.chunks = 1;
    mesh.windows = 1;
    return mesh;
  }

  std::string kept_checkpoint(int64_t step, const std::string& name) const {
    const std::string path = directory_ / name;
    std::filesystem::rename(checkpoint::checkpoint_path(directory_ / "checkpoints", step), path);
    return path;
  }
};

// The head of the second reads its embedding.
class PipelineRanksOfModel : public PipelineRanks, public testing::WithParamInterface<const char*> {
 protected:
  PipelineRanksOfModel() : PipelineRanks(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(, PipelineRanksOfModel,
                         testing::Values("qwen3_windows", "mha_tied_llama3"));

TEST_P(PipelineRanksOfModel, HaveTheBitsOfOneStage) {
  for (const Mesh& mesh : kStaged) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    EXPECT_EQ(run_on(mesh), run_on(flat(mesh)));
  }
}

TEST_P(PipelineRanksOfModel, GoOnFromOneStageAndTheOtherWayRound) {
  for (const Mesh& mesh : kStaged) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    const Result whole = run_on(flat(mesh));
    const std::string from_flat = kept_checkpoint(2, "from-flat");
    EXPECT_EQ(run_on(mesh).hash, whole.hash);
    const std::string from_stages = kept_checkpoint(2, "from-stages");
    EXPECT_EQ(run_on(mesh, from_flat).hash, whole.hash);
    EXPECT_EQ(run_on(flat(mesh), from_stages).hash, whole.hash);
    std::filesystem::remove_all(from_flat);
    std::filesystem::remove_all(from_stages);
  }
}

// Of a model of 4 blocks, whose head reads its embedding.
class ChunksOfPipelineRanks : public PipelineRanks {
 protected:
  ChunksOfPipelineRanks() : PipelineRanks("gemma3_pattern") {}
};

TEST_F(ChunksOfPipelineRanks, HaveTheBitsOfOneStageAndGoOnFromIt) {
  constexpr Mesh kChunked[] = {
      {.pipeline = 2, .chunks = 2},
      {.pipeline = 2, .chunks = 2, .windows = 2, .schedule = config::PipelineSchedule::kGpipe},
      {.pipeline = 2, .chunks = 2, .windows = 4, .schedule = config::PipelineSchedule::kZeroBubble},
      {.data_ranks = 2, .pipeline = 2, .chunks = 2, .windows = 4}};
  for (const Mesh& mesh : kChunked) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    const Result whole = run_on(flat(mesh));
    const std::string from_flat = kept_checkpoint(2, "from-flat");
    EXPECT_EQ(run_on(mesh), whole);
    const std::string from_chunks = kept_checkpoint(2, "from-chunks");
    EXPECT_EQ(run_on(mesh, from_flat).hash, whole.hash);
    EXPECT_EQ(run_on({.data_ranks = mesh.data_ranks, .pipeline = 4}, from_chunks).hash, whole.hash);
    std::filesystem::remove_all(from_flat);
    std::filesystem::remove_all(from_chunks);
  }
}

class PipelineRanksOfFamily : public PipelineRanks,
                              public testing::WithParamInterface<const char*> {
 protected:
  PipelineRanksOfFamily() : PipelineRanks(GetParam()) {}
};

TEST_P(PipelineRanksOfFamily, HaveTheBitsOfOneStage) {
  EXPECT_EQ(run_on(kStaged[0]), run_on(flat(kStaged[0])));
}

INSTANTIATE_TEST_SUITE_P(, PipelineRanksOfFamily,
                         testing::Values("gemma2_untied", "gqa_untied", "phi3", "olmo2",
                                         "mistral_bf16", "fp8", "gemma3_vision", "gpt2", "gemma2",
                                         "qwen2_windows"));

}  // namespace
}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// A source is told what it is asked for next, from one step into the next one, so that it can read
// ahead.
#include <gtest/gtest.h>

#include <vector>

#include "engine/exec/executor.h"
#include "engine/plan/builder.h"
#include "tests/support/small_model.h"
#include "tests/support/small_run.h"

namespace strata {
namespace {

class ToldSource : public exec::StateSource {
 public:
  explicit ToldSource(const model::ModelSpec& spec) : masters_(spec, test::kSeed) {}

  void expect(std::span<const exec::ChunkState> next) override {
    told.emplace_back();
    for (const exec::ChunkState& chunk : next) told.back().push_back(chunk.chunk);
  }
  void read(const exec::ChunkState& chunk) override {
    read_chunks.push_back(chunk.chunk);
    masters_.read(chunk);
  }

  std::vector<std::vector<int>> told;  // before each read
  std::vector<int> read_chunks;

 private:
  test::RandomSource masters_;
};

TEST(ExpectedChunks, AreThoseThatAreReadNext) {
  model::ModelSpec spec = model::build_spec(test::small_llama());
  for (model::Segment& segment : spec.segments) {
    for (model::Parameter& parameter : segment.parameters) parameter.frozen = true;
  }
  model::assign_offsets(spec, 1);
  plan::PlanInput input;
  input.spec = &spec;
  input.shape = {1, 8};
  input.inference = true;
  input.frozen_in_source = true;
  const plan::Plan plan = plan::build_plan(input, plan::smallest_placement(input));
  ToldSource source(spec);
  exec::ExecutorOptions options;
  options.backend = &kernels::ref_backend();
  options.frozen = &source;
  options.deadline_s = 60;
  exec::Executor executor(plan, spec, options);
  exec::Instance load;
  load.program = plan::ProgramName::kLoad;
  load.source = &source;
  executor.run(load);
  const size_t loaded = source.read_chunks.size();
  for (int step = 0; step < 3; ++step) {
    exec::Instance eval;
    eval.program = plan::ProgramName::kEval;
    test::fill_tokens(input, 1, 1, eval);
    executor.run(eval);
  }
  ASSERT_EQ(source.told.size(), source.read_chunks.size());
  ASSERT_GT(source.read_chunks.size(), loaded + 6) << "three steps read frozen weights again";
  for (size_t k = 0; k < source.told.size(); ++k) {
    const std::vector<int>& told = source.told[k];
    const size_t end = k < loaded ? loaded : source.read_chunks.size();
    ASSERT_FALSE(told.empty());
    if (k >= loaded) {
      EXPECT_GT(told.size(), 1u) << "the next step is like this one";
    }
    for (size_t i = 0; i < told.size() && k + i < end; ++i) {
      EXPECT_EQ(told[i], source.read_chunks[k + i]) << "read " << k << ", chunk " << i;
    }
    if (k < loaded) {
      EXPECT_LE(k + told.size(), loaded) << "nothing is loaded twice";
    }
  }
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// What a run that is resumed may change of its options.
#include "engine/train/resume_check.h"

#include <gtest/gtest.h>

namespace strata::train {
namespace {

config::Options ranks_of(int64_t ranks, int64_t shard_ranks) {
  config::Options options;
  options.ranks = ranks;
  options.shard_ranks = shard_ranks;
  return options;
}

config::Json about(const config::Options& options) {
  config::Json json = config::Json::object();
  json.set("options",
           config::Json::parse(config::to_json(config::Command::kTrain, options), "options"));
  return json;
}

// A start with other values, forced and killed before its first checkpoint, is forgotten, except
// for what a run may change.
TEST(ResumeCheck, AForcedStartWithoutACheckpointIsForgotten) {
  config::Options saved, forced;
  forced.seed = 5;
  forced.lr = 0.5;
  const auto options = [](const config::Options& of) { return *about(of).find("options"); };
  const config::Json settled = settled_options(options(forced), options(saved));
  EXPECT_EQ(settled.find("seed")->int64(), 0);
  EXPECT_EQ(settled.find("lr")->number(), 0.5);
}

// What counts is how many copies of the state there are, however the options say it.
TEST(ResumeCheck, ANumberOfCopiesIsComparedAndNotItsOption) {
  const auto changed = [](const config::Options& before, const config::Options& now) {
    return changed_options(about(before), now).breaking;
  };
  EXPECT_TRUE(changed(ranks_of(2, 0), ranks_of(2, 2)).empty());
  EXPECT_TRUE(changed(ranks_of(2, 2), ranks_of(2, 0)).empty());
  EXPECT_TRUE(changed(ranks_of(4, 2), ranks_of(4, 2)).empty());
  EXPECT_EQ(changed(ranks_of(2, 0), ranks_of(2, 1)),
            std::vector<std::string>{"--shard-ranks 1 (checkpoint: not given)"});
  EXPECT_EQ(changed(ranks_of(4, 2), ranks_of(4, 1)),
            std::vector<std::string>{"--shard-ranks 1 (checkpoint: 2)"});
}

TEST(ResumeCheck, ACheckpointFromBeforeThereWereCopiesHasOne) {
  const config::Json before = config::Json::parse(R"({"options": {"ranks": 2}})", "test");
  EXPECT_TRUE(changed_options(before, ranks_of(2, 2)).breaking.empty());
  EXPECT_EQ(changed_options(before, ranks_of(2, 1)).breaking.size(), 1u);
}

// They change which samples a step has and how its sums are made, also where their number was not
// written yet.
TEST(ResumeCheck, OtherTensorRanksDoNotContinueTheRun) {
  config::Options sliced = ranks_of(2, 0);
  sliced.tensor_ranks = 2;
  const config::Json before = config::Json::parse(R"({"options": {"ranks": 2}})", "test");
  for (const config::Json& saved : {about(ranks_of(2, 0)), before}) {
    EXPECT_EQ(changed_options(saved, sliced).breaking,
              std::vector<std::string>{"--tensor-ranks 2 (checkpoint: 1)"});
  }
  EXPECT_TRUE(changed_options(about(sliced), sliced).breaking.empty());
}

TEST(ResumeCheck, GradientsThatAreSentOtherwiseDoNotContinueTheRun) {
  config::Options rounded = ranks_of(2, 0);
  rounded.reduce_dtype = Payload::kBF16;
  const auto changes = changed_options(about(ranks_of(2, 0)), rounded);
  EXPECT_EQ(changes.breaking, std::vector<std::string>{"--reduce-dtype bf16 (checkpoint: fp32)"});
  EXPECT_TRUE(changes.allowed.empty());
}

TEST(ResumeCheck, OtherContextRanksDoNotContinueTheRun) {
  config::Options parts = ranks_of(2, 0);
  parts.context_ranks = 2;
  const config::Json before = config::Json::parse(R"({"options": {"ranks": 2}})", "test");
  for (const config::Json& saved : {about(ranks_of(2, 0)), before}) {
    EXPECT_EQ(changed_options(saved, parts).breaking,
              std::vector<std::string>{"--context-ranks 2 (checkpoint: 1)"});
  }
  EXPECT_TRUE(changed_options(about(parts), parts).breaking.empty());
}

// Machines with other numbers of ranks add gradients in another order.
TEST(ResumeCheck, SumsThatNestOtherwiseDoNotContinueTheRun) {
  const config::Json before = config::Json::parse("{}", "test");
  const config::Json saved = config::Json::parse(R"({"nested_ranks": 2})", "test");
  const plan::Mesh nested = {.world = 4, .node_ranks = 2};
  EXPECT_TRUE(changed_sums(before, nested, {}).breaking.empty());
  EXPECT_TRUE(changed_sums(saved, nested, {}).breaking.empty());
  EXPECT_EQ(changed_sums(saved, {.world = 4}, {}).breaking,
            std::vector<std::string>{"sums of single ranks (checkpoint: of machines of 2 ranks)"});
}

TEST(ResumeCheck, AnotherArithmeticDoesNotContinueTheRun) {
  config::Options cpu;
  cpu.device = config::Device::kCpu;
  config::Options cuda;
  cuda.device = config::Device::kCuda;
  config::Json about = config::Json::parse("{}", "test");
  EXPECT_TRUE(changed_arithmetic(about, cpu, "AVX2").breaking.empty()) << "a new run";
  about.set("options",
            config::Json::parse(config::to_json(config::Command::kTrain, cpu), "options"));
  EXPECT_TRUE(changed_arithmetic(about, cpu, "AVX2").breaking.empty()) << "an old checkpoint";
  about.set("arithmetic", std::string("AVX3"));
  EXPECT_TRUE(changed_arithmetic(about, cpu, "AVX3").breaking.empty());
  EXPECT_EQ(changed_arithmetic(about, cpu, "AVX2").breaking,
            std::vector<std::string>{"arithmetic of AVX2 (checkpoint: of AVX3)"});
  EXPECT_TRUE(changed_arithmetic(about, cuda, "NVIDIA H200").breaking.empty()) << "as told";
  EXPECT_FALSE(changed_arithmetic(about, {}, "AVX2").breaking.empty()) << "auto is the cpu";
  cuda.device_index = 1;
  about.set("options",
            config::Json::parse(config::to_json(config::Command::kTrain, cuda), "options"));
  cuda.device_index = -1;
  EXPECT_FALSE(changed_arithmetic(about, cuda, "NVIDIA H200").breaking.empty()) << "by any number";
}

TEST(ResumeCheck, AnotherExchangeOfContextRanksDoesNotContinueTheRun) {
  const config::Json none = config::Json::parse("{}", "test");
  const config::Json before = config::Json::parse(R"({"options": {}})", "test");
  const config::Json heads = config::Json::parse(R"({"options": {}, "swaps_heads": 1})", "test");
  const plan::Mesh mesh = {.world = 4, .context = 4};
  const auto breaking = [&](const config::Json& about, bool swaps) {
    return changed_sums(about, mesh, {.swaps_heads = swaps}).breaking;
  };
  EXPECT_TRUE(breaking(none, true).empty()) << "a new run";
  EXPECT_TRUE(breaking(before, false).empty());
  EXPECT_TRUE(breaking(heads, true).empty());
  EXPECT_EQ(breaking(before, true),
            std::vector<std::string>{"context-exchange heads (checkpoint: keys)"});
  EXPECT_EQ(breaking(heads, false),
            std::vector<std::string>{"context-exchange keys (checkpoint: heads)"});
}

}  // namespace
}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// --mesh sets the ranks of each axis, or names the axis that is wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/mesh_option.h"
#include "engine/config/options.h"

namespace strata::config {
namespace {

Options parse(std::vector<std::string> args) {
  args.insert(args.begin(), {"--model", "m", "--data", "d.txt", "--out", "o", "--steps", "1"});
  return resolve_command_line(Command::kTrain, args);
}

std::string problem_of(const std::vector<std::string>& args) {
  try {
    (void)parse(args);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
}

TEST(MeshOption, SetsTheRanksOfEachAxis) {
  const Options options = parse({"--mesh", "shard=3,replicate=2,tensor=4,pipeline=2"});
  EXPECT_EQ(options.ranks, 48);
  EXPECT_EQ(options.shards(), 3);
  EXPECT_EQ(options.copies(), 2);
  EXPECT_EQ(options.tensor_ranks, 4);
  EXPECT_EQ(options.pipeline_ranks, 2);
  EXPECT_TRUE(options.mesh.empty());
  EXPECT_EQ(mesh_text(options), "shard=3,replicate=2,tensor=4,pipeline=2");
  EXPECT_EQ(mesh_text(Options()), "shard=1");
}

// Context ranks share the state as data ranks do.
TEST(MeshOption, ContextRanksHaveShardsToo) {
  const Options options =
      parse({"--mesh", "shard=2,context=2,tensor=2", "--sequence-length", "64"});
  EXPECT_EQ(options.ranks, 8);
  EXPECT_EQ(options.context_ranks, 2);
  EXPECT_EQ(options.shards(), 4);
  EXPECT_EQ(options.batch_ranks(), 2);
  EXPECT_EQ(mesh_text(options), "shard=2,tensor=2,context=2");
}

TEST(MeshOption, RanksThatAreNotNamedShareTheState) {
  const Options options = parse({"--ranks", "8", "--mesh", "tensor=2"});
  EXPECT_EQ(options.shards(), 4);
  EXPECT_EQ(options.copies(), 1);
  EXPECT_EQ(parse({"--mesh", "tensor=2"}).ranks, 2);
}

TEST(MeshOption, AutoIsLeftToThePlanner) {
  EXPECT_TRUE(chooses_mesh(parse({"--ranks", "8", "--mesh", "auto"})));
  EXPECT_FALSE(chooses_mesh(parse({"--ranks", "8"})));
}

TEST(MeshOption, SaysWhatIsWrong) {
  const auto says = [](const std::vector<std::string>& args, const char* text) {
    const std::string problem = problem_of(args);
    EXPECT_NE(problem.find(text), std::string::npos) << problem;
  };
  says({"--mesh", "tenser=2"}, "--mesh tenser=2: tenser is no axis (did you mean tensor?)");
  says({"--mesh", "auto,tensor=2"}, "auto is no axis (give auto, or AXIS=N of shard, replicate");
  says({"--mesh", "tensor=0"}, "tensor=0 is not a number of ranks (give tensor=N with N from 1)");
  says({"--mesh", "tensor"}, "tensor is not a number of ranks");
  says({"--mesh", "tensor=2,tensor=3"}, "tensor is given twice (keep one)");
  says({"--mesh", "shard=1048576,tensor=2"}, "it has too many ranks");
  says({"--ranks", "6", "--mesh", "tensor=4"},
       "--mesh tensor=4: it has 4 ranks, and --ranks is 6 (give ranks that divide --ranks)");
  says({"--ranks", "8", "--mesh", "shard=2,tensor=2"}, "it has 4 ranks, and --ranks is 8");
  says({"--mesh", "tensor=2", "--tensor-ranks", "2"}, "--mesh and --tensor-ranks set the same");
}

}  // namespace
}  // namespace strata::config

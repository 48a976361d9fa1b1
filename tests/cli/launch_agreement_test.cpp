// SPDX-License-Identifier: Apache-2.0
// What machines must have in common, what plans say of bytes where they share groups unevenly, and
// the end, for which all wait.
#include <fstream>
#include <iterator>

#include "engine/config/json.h"
#include "tests/cli/launched_nodes.h"

namespace strata::cli::test {
namespace {

class LaunchAgreement : public LaunchedNodes {
 protected:
  // How two machines end that are started with other commands, by what the second one says.
  void expect_refused(const Arguments& of_first, const Arguments& of_second, const char* text) {
    const Nodes nodes;
    Process second(node(nodes, 1, of_second), here());
    Process first(node(nodes, 0, of_first), here());
    EXPECT_EQ(second.wait(), 2) << second.err();
    EXPECT_NE(second.err().find(text), std::string::npos) << second.err();
    EXPECT_EQ(first.wait(), 4) << first.err();
  }
  // What a run of several machines has said and done, in a JSON file of its directory.
  config::Json json_in(const std::string& name) const {
    std::ifstream file(sandbox_ / ("run/" + name));
    return config::Json::parse(std::string(std::istreambuf_iterator<char>(file), {}), name);
  }
};

// Gradients of another recipe may be scaled.
TEST_F(LaunchAgreement, AnotherRecipeIsRefused) {
  expect_refused(train("run", {"--steps", "2", "--recipe", "bf16"}),
                 train("run", {"--steps", "2", "--recipe", "fp16"}),
                 "they are not those of rank 0: --recipe fp16 (rank 0: bf16)");
}

TEST_F(LaunchAgreement, AnotherDirectoryIsRefused) {
  expect_refused(train("run", {"--steps", "2"}), train("run2", {"--steps", "2"}),
                 "they are not those of rank 0: --out run2 (rank 0: run)");
}

TEST_F(LaunchAgreement, OtherWeightsOfTheSameShapesAreRefused) {
  make_model(sandbox_, "other", {.seed = 2});
  const Arguments command = train("run", {"--steps", "2", "--zero-stage", "0"});
  Arguments other = command;
  *std::find(other.begin(), other.end(), "model") = "other";
  expect_refused(command, other,
                 "model: other: its weights are not those with which rank 0 begins");
}

// Three ranks on each of two machines, in groups of two: one group lies on both machines, and the
// first of each stage does not belong to it.
TEST_F(LaunchAgreement, RanksThatLieUnevenlySendTheBytesThatThePlanSaid) {
  const Nodes nodes = {.nodes = 2, .ranks = 3};
  for (const Arguments& mesh :
       {Arguments{"--tensor-ranks", "2", "--zero-stage", "0"}, Arguments{"--shard-ranks", "2"}}) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    Arguments steps = {"--steps", "2", "--force", "--json"};
    steps.insert(steps.end(), mesh.begin(), mesh.end());
    Process second(node(nodes, 1, train("run", steps)), here());
    Process first(node(nodes, 0, train("run", steps)), here());
    ASSERT_EQ(first.wait(), 0) << first.err();
    ASSERT_EQ(second.wait(), 0) << second.err();
    const config::Json said = json_in("plan.json"), done = json_in("summary.json");
    EXPECT_EQ(done.find("step_sent_bytes")->int64(), said.find("sent_bytes")->int64());
    EXPECT_EQ(done.find("step_sent_between_machines_bytes")->int64(),
              said.find("sent_between_machines_bytes")->int64());
  }
}

// A rank that has trained waits for the first one, which writes the model, and cannot here.
TEST_F(LaunchAgreement, NoMachineSucceedsWhereTheModelIsNotWritten) {
  const Nodes nodes;
  const Arguments command = train("run", {"--steps", "300"});
  Process second(node(nodes, 1, command), here());
  Process first(node(nodes, 0, command), here());
  ASSERT_TRUE(first.prints("step 1/")) << first.err();
  std::filesystem::create_directories(sandbox_ / "run/model/of a user");
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_EQ(second.wait(), 4) << second.err();
}

// Its ranks are asked to end, and write a checkpoint with all others.
TEST_F(LaunchAgreement, ALaunchingProcessThatIsKilledStopsTheRunAndIsNamed) {
  const Nodes nodes;
  const Arguments command = train("run", {"--steps", "1000000"});
  Process second(node(nodes, 1, command), here());
  Process first(node(nodes, 0, command), here());
  ASSERT_TRUE(first.prints("step 1/")) << first.err();
  second.kill(SIGKILL);
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_NE(first.err().find("the process that started rank 1 is gone"), std::string::npos)
      << first.err();
  EXPECT_FALSE(std::filesystem::is_empty(sandbox_ / "run/checkpoints"));
}

}  // namespace
}  // namespace strata::cli::test

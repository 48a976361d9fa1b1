// SPDX-License-Identifier: Apache-2.0
// `strata launch` on several machines, all of them this one and over the loopback interface: the
// bits of one machine's run, the secret, a machine that does not come, and a run directory that a
// machine does not see.
#include "tests/cli/launched_nodes.h"

namespace strata::cli::test {
namespace {

class LaunchNodes : public LaunchedNodes {
 protected:
  // The state after four steps, which all machines start on this one.
  std::string state_of_nodes(const Nodes& nodes, const Arguments& more) {
    Arguments steps = {"--steps", "4", "--force"};
    steps.insert(steps.end(), more.begin(), more.end());
    std::vector<std::unique_ptr<Process>> others;
    for (int rank = 1; rank < nodes.nodes; ++rank) {
      others.push_back(std::make_unique<Process>(node(nodes, rank, train("nodes", steps)), here()));
    }
    const std::string state = state_of(node(nodes, 0, train("nodes", steps)));
    for (const auto& other : others) {
      EXPECT_EQ(other->wait(), 0) << other->err();
      EXPECT_EQ(other->out(), "");
    }
    return state;
  }
  std::vector<double> losses_in(const std::string& out) const {
    const std::string text = losses_of(out), name = "\"loss\":";
    std::vector<double> losses;
    for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
      losses.push_back(std::stod(text.substr(at + name.size())));
    }
    return losses;
  }
};

TEST_F(LaunchNodes, MachinesHaveTheBitsOfOne) {
  struct Way {
    Nodes nodes;
    Arguments more;
  };
  const Way ways[] = {{{.nodes = 2, .ranks = 1}, {}},
                      {{.nodes = 3, .ranks = 1}, {"--zero-stage", "1"}}};
  for (const Way& way : ways) {
    SCOPED_TRACE(testing::PrintToString(way.more));
    const std::string state = state_of_nodes(way.nodes, way.more);
    Arguments steps = {"--steps", "4", "--force", "--ranks", std::to_string(way.nodes.nodes)};
    steps.insert(steps.end(), way.more.begin(), way.more.end());
    EXPECT_EQ(state, state_of(train("one", steps)));
    EXPECT_NE(losses_of("one"), "");
    EXPECT_EQ(losses_of("nodes"), losses_of("one"));
  }
}

// Sums of several ranks of a machine come first, so four ranks of two machines have other last bits
// than four of one, but the same ones in every run.
TEST_F(LaunchNodes, MachinesOfSeveralRanksHaveTheSameBitsWhereverTheStateLies) {
  const Nodes nodes = {.nodes = 2, .ranks = 2};
  const std::string state = state_of_nodes(nodes, {"--nvme", ".", "--offload", "nvme"});
  EXPECT_EQ(state, state_of_nodes(nodes, {"--zero-stage", "1"}));
  EXPECT_NE(state_of(train("one", {"--steps", "4", "--ranks", "4"})), "");
  const std::vector<double> losses = losses_in("nodes"), expected = losses_in("one");
  ASSERT_EQ(losses.size(), 4u);
  ASSERT_EQ(expected.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / expected[i], 1, 1e-5);
  // So the run does not go on there without a word.
  const Arguments elsewhere = {"--resume", "--steps", "5", "--ranks", "4"};
  Process refused(train("nodes", elsewhere), here());
  EXPECT_EQ(refused.wait(), 2) << refused.err();
  EXPECT_NE(refused.err().find("sums of single ranks (checkpoint: of machines of 2 ranks)"),
            std::string::npos)
      << refused.err();
}

TEST_F(LaunchNodes, AStopOnOneMachineStopsAllAndTheRunResumes) {
  const Nodes nodes;
  Process second(node(nodes, 1, train("run", {"--steps", "1000000"})), here());
  Process first(node(nodes, 0, train("run", {"--steps", "1000000"})), here());
  ASSERT_TRUE(first.prints("step 1/")) << first.err();
  second.kill(SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_NE(first.out().find("next     strata launch --nodes 2 --node-rank K --rendezvous " +
                             nodes.address +
                             " --secret-file secret --ranks 1 -- train --out run --resume"),
            std::string::npos)
      << first.out();
}

TEST_F(LaunchNodes, ARankThatIsKilledEndsTheOtherMachine) {
  const Nodes nodes;
  Process first(node(nodes, 0, train("run", {"--steps", "1000000"})), here());
  while (ranks_of("run").empty() && !first.is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const pid_t rank_0 = ranks_of("run").front();
  Process second(node(nodes, 1, train("run", {"--steps", "1000000"})), here());
  ASSERT_TRUE(first.prints("step 1/")) << first.err();
  for (const pid_t rank : ranks_of("run")) {
    if (rank != rank_0) kill(rank, SIGKILL);
  }
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_NE(first.err().find("rank 1 is gone"), std::string::npos) << first.err();
  EXPECT_EQ(second.wait(), 128 + SIGKILL) << second.err();
}

TEST_F(LaunchNodes, WithoutTheSecretNobodyJoins) {
  write_secret("other", std::string(64, 'b'));
  Nodes nodes, strangers;
  strangers.address = nodes.address;
  strangers.secret = "other";
  Process stranger(node(strangers, 1, train("run", {"--steps", "2"})), here());
  Process first(node(nodes, 0, train("run", {"--steps", "2"})), here());
  EXPECT_EQ(stranger.wait(), 2) << stranger.err();
  EXPECT_NE(stranger.err().find("secret"), std::string::npos) << stranger.err();
  // The place is still free.
  Process second(node(nodes, 1, train("run", {"--steps", "2"})), here());
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
}

TEST_F(LaunchNodes, MachinesThatDoNotComeAreNamed) {
  const Nodes nodes = {.nodes = 3, .ranks = 2};
  Arguments all = node(nodes, 0, train("run", {"--steps", "2"}));
  Arguments there = node(nodes, 1, train("run", {"--steps", "2"}));
  for (Arguments* each : {&all, &there}) {
    *std::find(each->begin(), each->end(), "60") = each == &all ? "5" : "30";
  }
  Process second(there, here());
  Process first(all, here());
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_NE(first.err().find("ranks: node 2: rank 4, 5: did not connect to " + nodes.address +
                             " within 5 s"),
            std::string::npos)
      << first.err();
  EXPECT_EQ(second.wait(), 4) << second.err();
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run"));
}

TEST_F(LaunchNodes, ARunDirectoryThatAMachineDoesNotSeeIsRefused) {
  const Nodes nodes;
  std::filesystem::create_directory(sandbox_ / "elsewhere");
  for (const char* name : {"model", "secret"}) {
    std::filesystem::create_symlink(sandbox_ / name, sandbox_ / ("elsewhere/" + std::string(name)));
  }
  Process second(node(nodes, 1, train("run", {"--steps", "2"})),
                 {.directory = sandbox_ / "elsewhere"});
  Process first(node(nodes, 0, train("run", {"--steps", "2"})), here());
  EXPECT_EQ(second.wait(), 2) << second.err();
  EXPECT_NE(second.err().find("out: run: node 1 ("), std::string::npos) << second.err();
  EXPECT_NE(second.err().find("does not see the run directory of rank 0"), std::string::npos);
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_NE(first.err().find("out: run: node 1 ("), std::string::npos) << first.err();
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run"));
  for (const auto& [path, text] : sandbox_.snapshot()) {
    EXPECT_EQ(path.find("/.strata-"), std::string::npos) << path;
  }
}

// Each rank would update its part of the weights in its own way.
TEST_F(LaunchNodes, OptionsThatDifferBetweenMachinesAreRefused) {
  const Nodes nodes;
  Process second(node(nodes, 1, train("run", {"--steps", "2", "--lr", "0.5", "--shuffle", "off"})),
                 here());
  Process first(node(nodes, 0, train("run", {"--steps", "2", "--lr", "0.25"})), here());
  EXPECT_EQ(second.wait(), 2) << second.err();
  const char* const text =
      "options: they are not those of rank 0: --shuffle off (rank 0: on), --lr 0.5 (rank 0: 0.25)";
  EXPECT_NE(second.err().find(text), std::string::npos) << second.err();
  EXPECT_EQ(first.wait(), 4) << first.err();
  EXPECT_NE(first.err().find("--lr 0.5 (rank 0: 0.25)"), std::string::npos) << first.err();
}

TEST_F(LaunchNodes, MistakesAreReportedBeforeAnythingStarts) {
  write_secret("short", "abc");
  write_text(sandbox_ / "open", std::string(64, 'a'));
  chmod((sandbox_ / "open").c_str(), 0644);
  const Arguments command = {"--",     "train",     "--model", "model",
                             "--data", STRATA_TEXT, "--out",   "r"};
  struct Mistake {
    Arguments options;
    std::vector<const char*> texts;
  };
  const Mistake mistakes[] = {
      {{"--nodes", "2"},
       {"3 problems", "--node-rank is missing", "--rendezvous is missing",
        "--secret-file is missing"}},
      {{"--nodes", "2", "--node-rank", "2", "--rendezvous", "h:1", "--secret-file", "secret"},
       {"--node-rank 2: there are 2 machines (give 0 on"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h", "--secret-file", "secret"},
       {"address: h: it is not HOST:PORT"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h:65535", "--secret-file", "secret",
        "--max-restarts", "1"},
       {"--rendezvous h:65535: it is the last port, and with --max-restarts"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h:1", "--secret-file", "none"},
       {"secret of the job: none: No such file"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h:1", "--secret-file", "short"},
       {"secret of the job: short: it has 3 characters"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h:1", "--secret-file", "open"},
       {"secret of the job: open: other users own it, or may read or write it"}},
      {{"--nodes", "2", "--node-rank", "0", "--rendezvous", "h:1", "--secret-file", "."},
       {"secret of the job: .: it is not a file"}},
  };
  for (const Mistake& mistake : mistakes) {
    Arguments words = {"launch"};
    words.insert(words.end(), mistake.options.begin(), mistake.options.end());
    words.insert(words.end(), command.begin(), command.end());
    Process process(words, here());
    EXPECT_EQ(process.wait(), 2) << process.err();
    for (const char* text : mistake.texts) {
      EXPECT_NE(process.err().find(text), std::string::npos) << process.err();
    }
  }
}

}  // namespace
}  // namespace strata::cli::test

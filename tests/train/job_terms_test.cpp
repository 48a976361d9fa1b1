// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before they plan: it arrives as it was, and the least of all machines
// is taken.
#include "engine/train/job_terms.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::train {
namespace {

NodeFacts node_of(const std::string& host, int64_t cores, int64_t memory_bytes) {
  NodeFacts node;
  node.host = host;
  node.processors = std::string(static_cast<size_t>(cores), '1');
  node.limits.cores = cores;
  node.limits.memory_total_bytes = 2 * memory_bytes;
  node.limits.memory_available_bytes = memory_bytes;
  node.host_budget = memory_bytes;
  node.nvme_free_bytes = 100 * kGiB;
  return node;
}

TEST(JobTerms, AMachinesFactsArriveAsTheyWere) {
  NodeFacts node = node_of("a", 4, kGiB);
  node.limits.cgroup_free_bytes = 17;
  node.peers = "NCCL 2.28.3";
  node.host_budget = 3 * kGiB;
  const NodeFacts read = parse_node(to_text(node));
  EXPECT_EQ(read.host, "a");
  EXPECT_EQ(read.processors, "1111");
  EXPECT_EQ(read.limits.cores, 4);
  EXPECT_EQ(read.limits.memory_available_bytes, kGiB);
  EXPECT_EQ(read.limits.cgroup_free_bytes, 17);
  EXPECT_EQ(read.limits.memlock_bytes, std::nullopt);
  EXPECT_EQ(read.nvme_free_bytes, 100 * kGiB);
  EXPECT_EQ(read.peers, "NCCL 2.28.3");
  EXPECT_EQ(read.host_budget, 3 * kGiB);
}

TEST(JobTerms, TermsArriveAsTheyWere) {
  JobTerms terms;
  terms.facts.limits = node_of("a", 4, kGiB).limits;
  terms.facts.machine.name = "a \"name\"";
  terms.facts.machine.matmul_flops_per_s = 1.25e11;
  terms.facts.machine.memory_bytes_per_s = 2e10;
  terms.facts.machine.optimizer_bytes_per_s = 2e10;
  terms.facts.machine.cores = 4;
  terms.facts.machine.host_bytes = 8 * kGiB;
  terms.facts.data_bytes = 3;
  terms.facts.steps = 9;
  terms.resume_from = "run/checkpoints/step-000007";
  terms.resumed_step = 7;
  terms.run = "nonce";
  terms.weights = "89ab";
  terms.data = "0123";
  terms.options = "{}";
  const JobTerms read = parse_terms(to_text(terms));
  EXPECT_EQ(read.facts.limits.memory_available_bytes, kGiB);
  EXPECT_EQ(read.facts.machine.name, "a \"name\"");
  EXPECT_EQ(read.facts.machine.matmul_flops_per_s, 1.25e11);
  EXPECT_EQ(read.facts.data_bytes, 3);
  EXPECT_EQ(read.facts.steps, 9);
  EXPECT_EQ(read.resume_from, terms.resume_from);
  EXPECT_EQ(read.data, "0123");
  EXPECT_EQ(read.options, "{}");
  EXPECT_EQ(read.resumed_step, 7);
  EXPECT_EQ(read.run, "nonce");
  EXPECT_EQ(read.weights, "89ab");
}

TEST(JobTerms, OtherBuildsAreRefused) {
  for (const char* text : {"{}", "{\"host\": 1}", "{\"host\": \"a\", \"processors\": \"\"}"}) {
    try {
      parse_node(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find("start all ranks with one build"),
                std::string::npos);
    }
  }
}

TEST(JobTerms, TheLeastOfAllMachinesIsTaken) {
  std::vector<NodeFacts> nodes = {node_of("a", 4, 8 * kGiB), node_of("b", 8, 4 * kGiB),
                                  node_of("c", 2, 6 * kGiB)};
  nodes[0].nvme_free_bytes = 50 * kGiB;
  nodes[0].limits.file_bytes = 2 * kGiB;
  nodes[2].limits.file_bytes = kGiB;
  RunFacts facts;
  EXPECT_EQ(
      take_least(nodes, facts),
      "machines: 3, and plans are made for the least of each figure: 4 GiB of host memory for "
      "the run, of node 1 (b), and 2 cores");
  EXPECT_EQ(facts.limits.usable_bytes(), 4 * kGiB);
  EXPECT_EQ(facts.limits.cores, 2);
  EXPECT_EQ(facts.limits.file_bytes, kGiB);
  EXPECT_EQ(facts.nvme_free_bytes, 50 * kGiB);
  EXPECT_EQ(facts.nvme_bytes_max, 50 * kGiB);

  nodes[0].host_budget = 3 * kGiB;  // --host-memory
  EXPECT_EQ(
      take_least(nodes, facts),
      "machines: 3, and plans are made for the least of each figure: 3 GiB of host memory for "
      "the run, of node 0 (a), and 2 cores");
  EXPECT_EQ(facts.limits.usable_bytes(), 4 * kGiB) << "the budget is node 0's, the memory node 1's";
  for (const int64_t own : {int64_t{0}, 2 * kGiB, 5 * kGiB}) {
    config::Options options;
    options.host_memory = own;
    EXPECT_EQ(host_budget_of(options, facts), 3 * kGiB) << "as all have it";
  }

  EXPECT_FALSE(facts.has_peers);
  for (NodeFacts& node : nodes) node.peers = "NCCL 2.28.3";
  (void)take_least(nodes, facts);
  EXPECT_TRUE(facts.has_peers);
  nodes[1].peers = "NCCL 2.27.5";
  (void)take_least(nodes, facts);
  EXPECT_FALSE(facts.has_peers) << "versions do not meet";

  RunFacts alone;
  EXPECT_EQ(take_least({nodes.data(), 1}, alone), "");
  EXPECT_EQ(alone.limits.cores, 4);
  EXPECT_EQ(alone.nvme_bytes_max, plan::kNoLimit);
  EXPECT_EQ(alone.host_budget, 0);
}

TEST(JobTerms, RanksOfAMachineHaveTheirProcessorsTogether) {
  const auto cores_of = [](NodeFacts node, const NodeFacts& rank) {
    add_rank(rank, node);
    return node.limits.cores;
  };
  const NodeFacts whole = node_of("a", 4, kGiB);
  EXPECT_EQ(cores_of(whole, whole), 4);
  NodeFacts left = node_of("a", 2, kGiB), right = left;
  right.processors = "0011";
  EXPECT_EQ(cores_of(left, right), 4);
  NodeFacts limited = whole;
  limited.limits.cores = 3;  // by a quota
  EXPECT_EQ(cores_of(limited, limited), 3);
  NodeFacts unknown = whole;
  unknown.processors = "";
  EXPECT_EQ(cores_of(unknown, unknown), 4);
}

}  // namespace
}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
// A budget of more memory than there is: a plan for another machine has it, a run and a plan for
// this one get what the machine leaves, and are refused before anything is measured where that is
// too little.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/train/run_plan.h"

namespace strata::train {
namespace {

class HostBudget : public testing::Test {
 protected:
  HostBudget() {
    at_.model_type = "llama";
    at_.layers = 4;
    at_.hidden = 1024;
    at_.heads = 8;
    at_.kv_heads = 8;
    at_.head_size = 128;
    at_.feed_forward = 4096;
    at_.vocabulary = 1000;
    at_.max_position = 256;
    options_.sequence_length = 64;
    options_.host_memory = 1024 * kGiB;
  }

  RunFacts facts(int64_t available_bytes, bool elsewhere) const {
    RunFacts facts;
    facts.machine = config::read_machine(STRATA_MACHINES "/small-2core.toml");
    facts.limits.memory_total_bytes = 2 * available_bytes;
    facts.limits.memory_available_bytes = available_bytes;
    facts.elsewhere = elsewhere;
    return facts;
  }

  model::Architecture at_;  // of 69M parameters, 1.1 GB of state
  config::Options options_;
};

TEST_F(HostBudget, IsWhatTheMachineLeavesWhereItRuns) {
  const int64_t enough = 8 * kGiB;
  const RunFacts here = facts(enough, false);
  require_fit(model::build_spec(at_), options_, here);
  EXPECT_EQ(plan_run(model::build_spec(at_), options_, here).host_budget,
            here.limits.usable_bytes());
  options_.host_memory = 4 * kGiB;  // there is more
  EXPECT_EQ(plan_run(model::build_spec(at_), options_, here).host_budget, 4 * kGiB);
}

TEST_F(HostBudget, ThatIsNotThereIsRefusedWhereItRuns) {
  const int64_t little = 512 * kMiB;
  require_fit(model::build_spec(at_), options_, facts(little, true));  // of another machine
  try {
    require_fit(model::build_spec(at_), options_, facts(little, false));
    FAIL() << "taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    for (const char* part :
         {"--host-memory is 1 TiB", "there is (memory", "the least that fits is"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
    }
  }
}

// It takes its memory from the host's.
TEST_F(HostBudget, LeavesTheRestToAnEmulatedDevice) {
  options_.device = config::Device::kEmulated;
  options_.host_memory = 2 * kGiB;
  options_.ranks = 2;
  const RunFacts here = facts(8 * kGiB, false);
  const int64_t left = (here.limits.usable_bytes() - 2 * kGiB) / 2;
  const RunPlan run = plan_run(model::build_spec(at_), options_, here);
  EXPECT_EQ(run.input.device_budget, left);
  EXPECT_LE(run.ranks[0].arenas.bytes[static_cast<size_t>(plan::Arena::kDevice)], left);
  options_.host_memory = here.limits.usable_bytes();
  try {
    require_fit(model::build_spec(at_), options_, here);
    FAIL() << "taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("raise --device-memory"), std::string::npos) << text;
  }
}

// Ranks of a machine get equal parts of it, and the stage that is refused first need not be the one
// that needs most.
TEST_F(HostBudget, ThatIsNamedAsTheLeastSufficesForAllStages) {
  options_.ranks = options_.pipeline_ranks = 2;
  options_.micro_batch = 2;
  at_.hidden = 256;
  at_.heads = at_.kv_heads = 8;
  at_.head_size = 32;
  at_.feed_forward = 704;
  at_.layers = 6;
  at_.tied = true;  // the last stage has the embedding's gradient, too
  options_.sequence_length = 128;
  for (const int64_t accumulate : {1, 2, 4}) {
    options_.accumulate = accumulate;
    options_.host_memory = 20 * kMiB;
    RunFacts here = facts(8 * kGiB, false);
    here.nvme_free_bytes = 100 * kGiB;
    options_.nvme = {"/tmp"};
    const std::string wanted = "the least that fits is --host-memory ";
    try {
      require_fit(model::build_spec(at_), options_, here);
      FAIL() << "taken";
    } catch (const Error& error) {
      const std::string text = error.what();
      const size_t at = text.find(wanted);
      ASSERT_NE(at, std::string::npos) << text;
      const size_t begin = at + wanted.size();
      options_.host_memory =
          *parse_bytes(text.substr(begin, text.find_first_of(" ,;)", begin) - begin));
    }
    EXPECT_NO_THROW(require_fit(model::build_spec(at_), options_, here)) << accumulate;
  }
}

}  // namespace
}  // namespace strata::train

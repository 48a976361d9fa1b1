// SPDX-License-Identifier: Apache-2.0
// Mistakes about caches of keys and values that the verifier must find.
#include <gtest/gtest.h>

#include <functional>

#include "engine/plan/builder.h"
#include "engine/plan/planner.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

class CacheBugs : public ::testing::Test {
 protected:
  CacheBugs() {
    test::Draw draw(2);
    model::Architecture at = test::random_architecture(draw);
    at.layers = 3;
    spec_ = model::build_spec(at);
    for (model::Segment& segment : spec_.segments) {
      for (model::Parameter& parameter : segment.parameters) parameter.frozen = true;
    }
    model::assign_offsets(spec_, 1);
    PlanInput input;
    input.spec = &spec_;
    input.shape = {.length = 8, .cache_rows = 3, .cache_positions = 100};
    input.mode = OptimizerMode::kInBackward;
    input.inference = true;
    input.nvme_budget = int64_t{1} << 40;
    plan_ = build_plan(input, smallest_placement(input));
  }

  Program& generate() { return plan_.programs[static_cast<size_t>(ProgramName::kGenerate)]; }

  // The first access of the mode to a cache.
  Access& cache(Mode mode) {
    for (Access& access : generate().accesses) {
      if (access.value.kind == ValueKind::kCache && access.mode == mode) return access;
    }
    ADD_FAILURE() << "no such access";
    return generate().accesses.front();
  }

  void expect_found(const std::string& kind) {
    std::string found;
    for (const Violation& violation : verify(plan_, spec_).violations) {
      found += violation.kind + " ";
    }
    EXPECT_NE(found.find(kind), std::string::npos) << "found: " << found;
  }

  model::ModelSpec spec_;
  Plan plan_;
};

TEST_F(CacheBugs, ThePlanWithoutThemIsAccepted) {
  EXPECT_TRUE(verify(plan_, spec_).ok());
}

TEST_F(CacheBugs, AttentionThatReadsAnotherLayersCache) {
  const int own = cache(Mode::kRead).value.segment;
  for (Access& access : generate().accesses) {
    if (access.value.kind == ValueKind::kCache && access.value.segment == own) {
      access.value.segment = own + 2;
    }
  }
  expect_found("value");
}

TEST_F(CacheBugs, AttentionThatExtendsAPart) {
  cache(Mode::kWrite).bytes -= 64;
  expect_found("coverage");
}

TEST_F(CacheBugs, AttentionThatReadsWhereNoCacheIs) {
  Access& read = cache(Mode::kRead);
  Access& write = cache(Mode::kWrite);
  for (const Holding& holding : plan_.boundary) {
    if (holding.value.kind != ValueKind::kCache) continue;
    if (holding.value.segment != read.value.segment) read.offset = write.offset = holding.offset;
  }
  expect_found("stale");
}

TEST_F(CacheBugs, ACacheThatNoProgramKeeps) {
  std::erase_if(plan_.boundary,
                [](const Holding& holding) { return holding.value.kind == ValueKind::kCache; });
  expect_found("unwritten");
}

TEST_F(CacheBugs, ACacheThatIsOverwritten) {
  const Access& read = cache(Mode::kRead);
  for (Access& access : generate().accesses) {
    if (access.value.kind == ValueKind::kLogits) access.offset = read.offset;
  }
  expect_found("boundary");
}

TEST_F(CacheBugs, TokensWithoutTheirPlaces) {
  for (Access& access : generate().accesses) {
    if (access.value.kind == ValueKind::kTokens) access.bytes = plan_.shape.tokens() * 4;
  }
  expect_found("coverage");
}

}  // namespace
}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/spec.h"
#include "engine/plan/plan.h"

// Proves that a plan may run, from the plan alone: it shares nothing with the planner but op.h,
// plan.h and the op contract. What it proves, and under which execution rules, is in VERIFIER.md.
namespace strata::plan {

// `kind` is one word: the rule that is broken. `op` is an index into the program, or -1 where the
// whole program or plan is meant (then `program` may be arbitrary).
struct Violation {
  std::string kind;
  ProgramName program = ProgramName::kStep;
  int64_t op = -1;
  std::string text;
};

// `violations` holds the first 32. `ops` and `accesses` are those of all programs.
struct VerifyReport {
  std::vector<Violation> violations;
  int64_t ops = 0;
  int64_t accesses = 0;
  bool ok() const { return violations.empty(); }
};

// Takes time about proportional to the accesses and 40 bytes an op besides the live intervals.
// Never fails on a malformed plan: it says what is wrong with it.
VerifyReport verify(const Plan& plan, const model::ModelSpec& spec);

// What one rank's plan cannot show: that all ranks planned the same run and that every group sees
// one sequence of collectives, each of one size. The plans must also pass verify() one by one.
VerifyReport verify_ranks(std::span<const Plan> plans, const model::ModelSpec& spec);

}  // namespace strata::plan

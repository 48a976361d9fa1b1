// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/spec.h"
#include "engine/plan/plan.h"

// Proves from a plan that it may run. It shares only op.h, plan.h, the op contract and IntervalMap
// with the planner. VERIFIER.md says what it proves, and under which execution rules.
namespace strata::plan {

// `kind` is the broken rule, in one word. `op` is an index into the program, or -1 for the whole
// program or plan (then `program` may be arbitrary).
struct Violation {
  std::string kind;
  ProgramName program = ProgramName::kStep;
  int64_t op = -1;
  std::string text;
};

// `violations` has the first 32. `ops` and `accesses` count those of all programs.
struct VerifyReport {
  std::vector<Violation> violations;
  int64_t ops = 0;
  int64_t accesses = 0;
  bool ok() const { return violations.empty(); }
};

// The time is about proportional to the number of accesses; the memory is 40 bytes an op and the
// live intervals. Checks run on several cores at once. A malformed plan is reported as violations,
// never by an exception.
VerifyReport verify(const Plan& plan, const model::ModelSpec& spec);

// Checks what one rank's plan cannot show: that all ranks planned the same run, that all ranks of a
// group have the same sequence of collectives with the same sizes, and that neighbouring stages
// have the same messages between them. Each plan must also pass verify().
VerifyReport verify_ranks(std::span<const Plan> plans, const model::ModelSpec& spec);
// The same for ranks that have different parts of the model: `spec_of` gives each rank's.
using SpecOf = std::function<const model::ModelSpec&(int rank)>;
VerifyReport verify_ranks(std::span<const Plan> plans, const SpecOf& spec_of);

}  // namespace strata::plan

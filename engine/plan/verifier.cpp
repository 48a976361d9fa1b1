// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/verifier.h"

#include "engine/plan/verifier_parts.h"

namespace strata::plan {
namespace {

using namespace verifying;

void verify_op(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  check_contract(facts, program, index, reporter);
  check_ledger(facts, program, index, reporter);
  const OpKind kind = program.ops[index].kind;
  if (is_transfer(kind)) {
    check_transfer(facts, program, index, reporter);
  } else if (is_compute(kind)) {
    check_compute(facts, program, index, reporter);
  } else if (kind == OpKind::kConvert) {
    check_convert(facts, program, index, reporter);
  } else if (kind != OpKind::kSave && kind != OpKind::kInput && kind != OpKind::kOutput) {
    check_update(facts, program, index, reporter);
  }
}

// False: it is malformed.
bool verify_program(const Facts& facts, const Program& program, Reporter& reporter) {
  if (!check_program_form(facts, program, reporter)) return false;
  bool good = true;
  std::vector<const Access*> sorted;
  for (size_t i = 0; i < program.ops.size() && !reporter.full(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (check_accesses(facts, program, index, sorted, reporter)) {
      verify_op(facts, program, index, reporter);
    } else {
      good = false;
    }
  }
  if (!good) return false;
  check_counts(facts, program, reporter);
  // Only a step overlaps the program before it, and only another step.
  check_races(facts, program, program.name == ProgramName::kStep ? 2 : 1, reporter);
  return true;
}

}  // namespace

VerifyReport verify(const Plan& plan, const model::ModelSpec& spec) {
  VerifyReport report;
  Reporter reporter(report);
  for (const Program& program : plan.programs) {
    report.ops += static_cast<int64_t>(program.ops.size());
    report.accesses += static_cast<int64_t>(program.accesses.size());
  }
  if (static_cast<int>(plan.recipe) >= kRecipeCount) {
    reporter.add("value", ProgramName::kStep, -1, "no such recipe");
    return report;
  }
  const Facts facts(plan, spec);
  if (!check_plan_form(facts, reporter)) return report;
  check_arenas(facts, reporter);
  check_sequence(facts, reporter);
  std::vector<const Program*> formed;
  for (const Program& program : plan.programs) {
    if (!reporter.full() && verify_program(facts, program, reporter)) formed.push_back(&program);
  }
  check_values(facts, formed, reporter);
  return report;
}

}  // namespace strata::plan

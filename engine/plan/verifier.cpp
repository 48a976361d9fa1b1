// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/verifier.h"

#include <algorithm>
#include <functional>

#include "engine/base/tasks.h"
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
  } else if (kind != OpKind::kSave && kind != OpKind::kInput && kind != OpKind::kOutput &&
             kind != OpKind::kSend && kind != OpKind::kRecv) {
    check_update(facts, program, index, reporter);
  }
}

// Checks the program op by op. False: it is malformed.
bool check_program(const Facts& facts, const Program& program, Reporter& reporter) {
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
  if (good) check_stages(facts, program, reporter);
  if (good) check_counts(facts, program, reporter);
  return good;
}

using Check = std::function<void(Reporter&)>;

// Runs the checks at the same time, and reports what they find in their order.
void run_checks(const std::vector<Check>& checks, Reporter& reporter) {
  std::vector<VerifyReport> found(checks.size());
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < checks.size(); ++i) {
    tasks.push_back([&, i] {
      Reporter own(found[i]);
      checks[i](own);
    });
  }
  run_tasks(tasks);
  for (VerifyReport& report : found) reporter.add(std::move(report));
}

}  // namespace

VerifyReport verify(const Plan& plan, const model::ModelSpec& spec) {
  VerifyReport report;
  Reporter reporter(report);
  std::vector<const Program*> programs;
  for (const Program& program : plan.programs) {
    report.ops += static_cast<int64_t>(program.ops.size());
    report.accesses += static_cast<int64_t>(program.accesses.size());
    programs.push_back(&program);
  }
  if (static_cast<int>(plan.recipe) >= kRecipeCount) {
    reporter.add("value", ProgramName::kStep, -1, "no such recipe");
    return report;
  }
  const Facts facts(plan, spec);
  if (!check_plan_form(facts, reporter)) return report;
  check_arenas(facts, reporter);
  check_sequence(facts, reporter);

  // What takes longest begins first.
  std::ranges::stable_sort(programs, std::greater{},
                           [](const Program* program) { return program->ops.size(); });
  std::vector<char> formed(programs.size());
  std::vector<Check> checks;
  for (size_t i = 0; i < programs.size(); ++i) {
    checks.push_back(
        [&, i](Reporter& own) { formed[i] = check_program(facts, *programs[i], own); });
  }
  run_checks(checks, reporter);
  if (reporter.full()) return report;

  std::vector<const Program*> well_formed;
  for (size_t i = 0; i < programs.size(); ++i) {
    if (formed[i]) well_formed.push_back(programs[i]);
  }
  checks.clear();
  for (const bool pending : {false, true}) {
    checks.push_back(
        [&, pending](Reporter& own) { check_values(facts, well_formed, pending, own); });
  }
  for (const Program* program : well_formed) {
    // Only a step overlaps the program before it, and only another step.
    const int copies = program->name == ProgramName::kStep ? 2 : 1;
    checks.push_back(
        [&, program, copies](Reporter& own) { check_races(facts, *program, copies, own); });
  }
  run_checks(checks, reporter);
  return report;
}

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bindings/cli/commands.h"
#include "bindings/cli/setup.h"
#include "engine/config/json.h"
#include "engine/model/architecture.h"
#include "engine/model/model_path.h"
#include "engine/plan/explainer.h"
#include "engine/train/plan_report.h"

namespace strata::cli {

// Needs config.json alone: no weights, nothing is allocated. With --data its tokens are counted as
// train counts them. A profile stands for its machine: memory, devices and drives.
int run_plan(const config::Options& given) {
  config::Options options = given;
  model::require_model_directory(options.model);
  const std::string path = options.model + "/config.json";
  const model::Architecture architecture =
      model::read_architecture(config::Json::read_file(path), path);
  require_positions(options, architecture);
  const model::ModelSpec spec = model::build_spec(architecture);
  const bool elsewhere = !given.machine.empty();
  train::RunFacts facts = elsewhere ? read_facts_elsewhere(options) : read_facts(options);
  facts.data_bytes = train::Dataset::least_bytes(architecture.vocabulary);
  if (!options.data.empty()) {
    const auto tokenizer = open_tokenizer(options, false);
    facts.data_bytes = open_data(options, architecture, tokenizer.get(), {})->bytes();
  }
  train::require_fit(spec, options, facts);
  if (!elsewhere) measure_machine(options, facts);
  const train::RunPlan plan = make_run_plan(spec, options, facts);
  const train::PlanReport report = train::report_of(plan);
  const std::string text =
      options.json ? train::plan_json(plan, report) + "\n" : train::plan_table(plan, report);
  std::fputs(text.c_str(), stdout);
  if (options.explain) {
    for (plan::ProgramName name : {plan::ProgramName::kStep, plan::ProgramName::kDrain}) {
      std::fputs(plan::explain(plan.ranks.front(), *plan.spec, name).c_str(),
                 options.json ? stderr : stdout);
    }
  }
  return 0;
}

}  // namespace strata::cli

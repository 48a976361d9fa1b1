// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bindings/cli/commands.h"
#include "bindings/cli/setup.h"
#include "engine/config/json.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_path.h"
#include "engine/plan/explainer.h"
#include "engine/train/plan_report.h"

namespace strata::cli {

namespace {

// Of the model, from its config.json alone; empty where that cannot be.
model::ModelSpec collect_spec(const config::Options& options, Failures& failures) {
  model::ModelSpec spec;
  const bool is_there = failures.collect([&] {
    model::require_model_directory(options.model);
    const std::string path = options.model + "/config.json";
    spec = model::build_spec(model::read_architecture_file(path));
  });
  if (!is_there) return spec;
  failures.collect([&] { require_positions(options, spec.architecture); });
  failures.collect([&] {
    model::ModelSpec grouped = spec;
    train::apply_groups(grouped, options);
  });
  return spec;
}

}  // namespace

// Needs config.json alone: no weights, nothing is allocated. With --data its tokens are counted as
// train counts them. A profile stands for its machine: memory, devices and drives.
int run_plan(const config::Options& given, const config::Json& deepspeed) {
  config::Options options = given;
  Failures failures;
  const model::ModelSpec spec = collect_spec(options, failures);
  const model::Architecture& architecture = spec.architecture;
  failures.collect([&] { train::require_built(options, !options.machine.empty()); });
  collect_files(options, failures);
  const auto profile = collect_profile(options, failures);
  if (given.machine.empty()) collect_drives(options, failures);
  failures.throw_if_any("cannot start strata plan");
  train::RunFacts facts = profile ? read_facts_elsewhere(*profile, options) : read_facts(options);
  facts.data_bytes = train::Dataset::least_bytes(architecture.vocabulary);
  if (!options.data.empty()) {
    const auto tokenizer = open_tokenizer(options, false);
    const int64_t room_bytes = profile ? 0 : train::room_for_reading(options, facts);
    facts.data_bytes =
        open_data(options, architecture, tokenizer.get(), {.room_bytes = room_bytes})->bytes();
  }
  train::require_fit(spec, options, facts);
  if (!profile) measure_machine(options, profile, facts);
  const train::RunPlan plan = make_run_plan(spec, options, facts);
  const train::PlanReport report = train::report_of(plan);
  if (options.json) {
    config::Json json = train::plan_json(plan, report);
    if (!deepspeed.is_null()) json.set("deepspeed", deepspeed);
    std::puts(json.dump().c_str());
  } else {
    std::fputs(train::plan_table(plan, report).c_str(), stdout);
  }
  if (options.explain) {
    for (plan::ProgramName name : {plan::ProgramName::kStep, plan::ProgramName::kDrain}) {
      std::fputs(plan::explain(plan.ranks.front(), *plan.spec, name).c_str(),
                 options.json ? stderr : stdout);
    }
  }
  return 0;
}

}  // namespace strata::cli

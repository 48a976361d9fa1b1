// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bindings/cli/cache_directory.h"
#include "bindings/cli/commands.h"
#include "engine/plan/explainer.h"
#include "engine/session/model_use.h"
#include "engine/train/plan_report.h"

namespace strata::cli {

int run_plan(const config::Options& options, const config::Json& deepspeed) {
  const train::RunPlan plan = session::plan_of(options, cache_directory());
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

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iterator>

#include "bindings/cli/cache_directory.h"
#include "bindings/cli/commands.h"
#include "engine/base/clock.h"
#include "engine/plan/explainer.h"
#include "engine/session/model_use.h"
#include "engine/train/plan_report.h"
#include "engine/train/work_progress.h"

namespace strata::cli {
namespace {

// The meshes of --mesh auto, and what --compare plans besides.
std::vector<train::Compared> compared(session::PlanRequest& request, bool compares) {
  train::WorkLine line(isatty(STDERR_FILENO) == 1);
  const auto show = [&](int64_t done, int64_t total) {
    std::fputs(line.at("comparing plans", done, total, now_s()).c_str(), stderr);
  };
  std::vector<train::Compared> all = request.choose_mesh(show);
  if (!compares) return all;
  std::vector<train::Compared> others = request.compare(show);
  all.insert(all.end(), std::make_move_iterator(others.begin()),
             std::make_move_iterator(others.end()));
  return all;
}

}  // namespace

// A run that does not fit is compared before it is refused, because that shows what would fit.
int run_plan(const config::Options& options, const config::Json& deepspeed) {
  session::PlanRequest request(options, cache_directory());
  const std::vector<train::Compared> others = compared(request, options.compare);
  const bool fits = others.empty() || others.front().refusal.empty();
  if (!fits && options.json) {
    config::Json json = config::Json::object();
    json.set("compared", train::compared_json(others));
    std::puts(json.dump().c_str());
  } else if (!fits) {
    std::fputs(train::compared_table(others).c_str(), stdout);
  }
  const train::RunPlan plan = request.plan();
  const train::PlanReport report = train::report_of(plan);
  if (options.json) {
    config::Json json = train::plan_json(plan, report);
    if (!deepspeed.is_null()) json.set("deepspeed", deepspeed);
    if (!others.empty()) json.set("compared", train::compared_json(others));
    std::puts(json.dump().c_str());
  } else {
    std::fputs(train::plan_table(plan, report, options.explain_lines).c_str(), stdout);
    if (!others.empty()) std::fputs(train::compared_table(others).c_str(), stdout);
  }
  if (options.explain) {
    for (plan::ProgramName name : {plan::ProgramName::kStep, plan::ProgramName::kDrain}) {
      std::fputs(plan::explain(plan.ranks.front(), plan.spec_of(0), name).c_str(),
                 options.json ? stderr : stdout);
    }
  }
  return 0;
}

}  // namespace strata::cli

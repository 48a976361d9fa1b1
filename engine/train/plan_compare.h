// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/train/plan_report.h"

// What the planner makes of other ways to run: which strategies fit and why the others do not, and
// what more memory, drives or ranks would change. Every number comes from a plan or a refusal.
namespace strata::train {

// What a plan is made from.
struct PlanBasis {
  model::ModelSpec spec;
  config::Options options;
  RunFacts facts;
};

enum class ComparedKind : uint8_t { kStrategy, kWhatIf, kMesh };

// A way to run, and its plan's report or the reason why it does not fit.
struct Compared {
  ComparedKind kind = ComparedKind::kStrategy;
  std::string name;          // of a strategy: the options that choose it
  std::string remark = {};   // what it means
  std::string refusal = {};  // empty: it fits
  PlanReport report = {};    // if it fits
  bool is_planned = false;   // it is the plan of the basis
  bool is_rough = false;     // the report is of a rough plan (RunFacts::rough)
};

// Is called before each plan with its number and their count.
using Planning = std::function<void(int64_t, int64_t)>;

// All of them, planned one after another. `other` is a machine to compare with. A basis that does
// not fit is compared too.
std::vector<Compared> compare_plans(const PlanBasis& basis,
                                    const std::optional<config::Machine>& other,
                                    const Planning& planning);

// The basis as it is planned, and with twice each memory and one more drive, with the same batch.
// `may_plan` is asked before each plan; the list ends where it says no.
std::vector<Compared> compare_hardware(const PlanBasis& basis,
                                       const std::function<bool()>& may_plan);

std::string compared_table(const std::vector<Compared>& compared);
config::Json compared_json(const std::vector<Compared>& compared);

}  // namespace strata::train

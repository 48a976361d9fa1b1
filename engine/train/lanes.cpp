// SPDX-License-Identifier: Apache-2.0
#include "engine/train/lanes.h"

#include <algorithm>
#include <cmath>

#include "engine/plan/op_contract.h"
#include "engine/plan/simulator.h"

namespace strata::train {
namespace {

using plan::Lane;

constexpr size_t kMostSimulatedOps = 300'000;
constexpr int kCopies = 3;        // the one in the middle has neighbours on both sides
constexpr double kDrawn = 500.0;  // gaps in a step that are still seen

// Makes the first op begin at 0.
void shift(StepLanes& step) {
  double first_s = INFINITY;
  for (const auto& spans : step.lanes) {
    if (!spans.empty()) first_s = std::min(first_s, spans.front().begin_s);
  }
  for (auto& spans : step.lanes) {
    for (LaneSpan& span : spans) {
      span.begin_s -= first_s;
      span.end_s -= first_s;
      step.end_s = std::max(step.end_s, span.end_s);
    }
  }
}

}  // namespace

std::vector<LaneSpan> joined_spans(std::span<const LaneSpan> spans, double gap_s) {
  std::vector<LaneSpan> joined;
  double longest_s = 0;  // of those in the last span; it has that one's kind
  for (const LaneSpan& span : spans) {
    const double length_s = span.end_s - span.begin_s;
    LaneSpan* last = joined.empty() ? nullptr : &joined.back();
    const bool follows = last != nullptr && span.begin_s - last->end_s < gap_s;
    const bool is_short = length_s < gap_s || (last && last->end_s - last->begin_s < gap_s);
    if (!follows || (span.kind != last->kind && !is_short)) {
      const double begin_s = last ? std::max(span.begin_s, last->end_s) : span.begin_s;
      if (span.end_s > begin_s) joined.push_back({span.kind, begin_s, span.end_s});
      longest_s = length_s;
      continue;
    }
    last->end_s = std::max(last->end_s, span.end_s);
    if (length_s <= longest_s) continue;
    last->kind = span.kind;
    longest_s = length_s;
  }
  return joined;
}

StepLanes predicted_lanes(const RunPlan& run) {
  const plan::Plan& plan = run.ranks.front();
  const plan::Program& program = plan.program(plan::ProgramName::kStep);
  StepLanes step;
  if (program.ops.size() > kMostSimulatedOps) return step;
  const plan::SimulationResult result = plan::simulate(plan, plan::ProgramName::kStep, run.rates,
                                                       {.copies = kCopies, .keep_times = true});
  const size_t first = kCopies / 2 * program.ops.size();
  for (size_t lane = 0; lane < step.lanes.size(); ++lane) {
    for (const uint32_t op : program.lanes[lane]) {
      const plan::PredictedTime& time = result.times[first + op];
      step.lanes[lane].push_back({program.ops[op].kind, time.begin_s, time.end_s});
    }
  }
  shift(step);
  return step;
}

StepLanes measured_lanes(const plan::Plan& plan, const exec::Instance& instance) {
  const plan::Program& program = plan.program(instance.program);
  StepLanes step;
  for (size_t lane = 0; lane < instance.times.size(); ++lane) {
    for (const exec::MeasuredTime& time : instance.times[lane]) {
      step.lanes[lane].push_back({program.ops[time.op].kind, time.begin_s, time.end_s});
    }
  }
  shift(step);
  return step;
}

config::Json lanes_json(const StepLanes& step) {
  // Six digits of the whole are more than a drawing shows.
  const double unit_s = step.end_s > 0 ? std::pow(10, std::floor(std::log10(step.end_s)) - 5) : 1;
  const auto rounded = [&](double seconds) { return std::round(seconds / unit_s) * unit_s; };
  config::Json lanes = config::Json::object();
  for (size_t lane = 0; lane < step.lanes.size(); ++lane) {
    if (step.lanes[lane].empty()) continue;
    config::Json list = config::Json::array();
    for (const LaneSpan& span : joined_spans(step.lanes[lane], step.end_s / kDrawn)) {
      list.push_back(config::Json::Array{plan::contract_of(span.kind).name, rounded(span.begin_s),
                                         rounded(span.end_s)});
    }
    lanes.set(plan::name_of(static_cast<Lane>(lane)), std::move(list));
  }
  config::Json json = config::Json::object();
  json.set("end_s", step.end_s);
  json.set("lanes", std::move(lanes));
  return json;
}

}  // namespace strata::train

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/op.h"
#include "engine/plan/plan.h"
#include "engine/plan/simulator.h"

// What lanes did when, predicted or measured, as a file that chrome://tracing and Perfetto read.
namespace strata::plan {

const char* name_of(Lane lane);

// One op: a bar on the row of its lane.
struct Span {
  Lane lane = Lane::kCompute;
  std::string name;
  double start_s = 0;
  double end_s = 0;
};

// "backward b3.mlp mb2", "optimize b1.attn c7-8".
std::string span_name(const Op& op, const model::ModelSpec& spec);

// The spans of a simulation that kept its times, copy after copy; ops without length are left out.
std::vector<Span> spans_of(const Program& program, const model::ModelSpec& spec,
                           const SimulationResult& result);

// JSON in Chrome's trace event format: one process named `process`, one thread a lane in the order
// of Lane (and more rows where ops of a lane overlap), times in microseconds.
std::string trace_json(std::string_view process, std::span<const Span> spans);

}  // namespace strata::plan

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "benchmarks/step_bench_report.h"
#include "benchmarks/step_bench_run.h"
#include "benchmarks/step_bench_yardstick.h"
#include "engine/config/machine.h"
#include "engine/exec/machine_probe.h"

// The sections of step_bench. Each alternates what it compares, round by round.
namespace strata::bench {

struct Settings {
  int rounds = 3;
  int steps = 4;  // of a burst; the first and the last are not counted
  int64_t host_bytes = 768 << 20;
  std::vector<double> rho = {1, 2, 4};
  std::vector<model::BatchShape> shapes = {{1, 128}, {2, 512}};  // resident, and deepspeed
  model::BatchShape shape = {1, 128};                            // of offload
  int micro_batches = 4;
  bool may_keep = true;
  bool profile = false;
  Recipe recipe = Recipe::kFp32;
  Yardstick torch;
  Yardstick deepspeed;
};

struct Context {
  const Bench& bench;
  const Settings& settings;
  const exec::ProbeOptions& probe;
  const config::Machine& machine;
  Report& report;
};

void resident_section(const Context& context);
void offload_section(const Context& context);
void optimizer_section(const Context& context);
void bytes_section(const Context& context);
void prediction_section(const Context& context);
void deepspeed_section(const Context& context);
void plans_section(const Context& context);

}  // namespace strata::bench

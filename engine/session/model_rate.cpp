// SPDX-License-Identifier: Apache-2.0
#include "engine/session/model_rate.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/devices.h"

namespace strata::session {
namespace {

// Whether a plan recomputes is not known before there is one, and plans depend on this rate. A
// recompute does not differ much from the rest in operations a second: half of it is near both.
double recomputed_share(config::Activations activations) {
  return activations == config::Activations::kKeep        ? 0
         : activations == config::Activations::kRecompute ? 1
                                                          : 0.5;
}

}  // namespace

double rate_of_model(model::ModelSpec spec, const config::Options& options,
                     const train::RunFacts& facts, kernels::Device& device) {
  constexpr int kRounds = 4;
  constexpr double kLongS = 0.02;
  try {
    train::apply_groups(spec, options);
    const model::BatchShape shape = facts.shape.value_or(train::shape_of(options));
    model::require_taken(spec, shape, device.description());
    return exec::probe_compute({.spec = spec,
                                .recipe = options.recipe,
                                .shape = shape,
                                .device = device,
                                .rounds = kRounds,
                                .long_s = kLongS,
                                .recomputed = recomputed_share(options.activations),
                                .device_bytes = train::device_budget_of(options, facts)});
  } catch (const Error& error) {
    // The planner says what does not fit, or what the options have wrong.
    if (error.code() != ErrorCode::kDoesNotFit && error.code() != ErrorCode::kConfig) throw;
    return 0;
  }
}

void measure_model(const model::ModelSpec& spec, const config::Options& options,
                   train::RunFacts& facts) {
  if (options.device != config::Device::kCuda || options.ranks != 1) return;
  const auto device = exec::open_device(
      {.kind = config::DeviceKind::kCuda,
       .index = static_cast<int>(std::max<int64_t>(0, options.device_index)),
       .interior = exec::describe(config::DeviceKind::kCuda, options.recipe, 1).interior,
       .plugin_path = options.plugin_path});
  facts.compute_flops_per_s = rate_of_model(spec, options, facts, *device);
}

}  // namespace strata::session

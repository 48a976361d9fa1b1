// SPDX-License-Identifier: Apache-2.0
#include "engine/session/model_rate.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/devices.h"
#include "engine/exec/rates_of.h"
#include "engine/model/footprint.h"

namespace strata::session {
namespace {

// Whether a plan recomputes is not known before there is one, and plans depend on this rate. A
// recompute does not differ much from the rest in operations a second: half of it is near both.
double recomputed_share(config::Activations activations) {
  return activations == config::Activations::kKeep        ? 0
         : activations == config::Activations::kRecompute ? 1
                                                          : 0.5;
}

// Operations of a forward and a backward of one segment of each kind.
double pass_flops(const model::ModelSpec& spec, const model::BatchShape& shape, Recipe recipe,
                  const kernels::Device& device) {
  std::map<model::SegmentKind, double> flops;
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    const model::Footprint one =
        model::footprint(spec, static_cast<int>(i), shape, recipe, device.description());
    double& most = flops[spec.segments[i].kind];
    most = std::max(most, one.forward_flops + one.backward_flops);
  }
  double sum = 0;
  for (const auto& [kind, most] : flops) sum += most;
  return sum;
}

}  // namespace

double rate_of_model(model::ModelSpec spec, const config::Options& options,
                     const train::RunFacts& facts, kernels::Device& device) {
  constexpr int kRounds = 4;
  constexpr double kLongS = 0.02;
  constexpr double kTooLongS = 2;  // by the rate of products, which attention may not reach
  try {
    train::apply_groups(spec, options);
    const model::BatchShape shape = facts.shape.value_or(train::shape_of(options));
    model::require_taken(spec, shape, device.description());
    const double products =  // 0: not known
        exec::best_rates_of(facts.machine, {.recipe = options.recipe}).matmul_flops_per_s;
    const double flops = pass_flops(spec, shape, options.recipe, device);
    if (products > 0 && flops > kTooLongS * products) return 0;
    const auto measure = [&] {
      return exec::probe_compute({.spec = spec,
                                  .recipe = options.recipe,
                                  .shape = shape,
                                  .device = device,
                                  .rounds = kRounds,
                                  .long_s = kLongS,
                                  .recomputed = recomputed_share(options.activations),
                                  .device_bytes = train::device_budget_of(options, facts)});
    };
    return on_own_thread(measure);
  } catch (const Error& error) {
    // The planner says what does not fit, or what the options have wrong, and a run what is wrong
    // with the device.
    const bool is_said_later = error.code() == ErrorCode::kDoesNotFit ||
                               error.code() == ErrorCode::kConfig ||
                               error.code() == ErrorCode::kDevice;
    if (!is_said_later) throw;
    return 0;
  }
}

void measure_model(const model::ModelSpec& spec, const config::Options& options,
                   train::RunFacts& facts) {
  const bool is_whole = options.tensor_ranks == 1 && options.context_ranks == 1;
  if (options.device != config::Device::kCuda || !is_whole) return;
  const auto device = exec::open_device(
      {.kind = config::DeviceKind::kCuda,
       .index = options.first_device(),
       .interior = exec::describe(config::DeviceKind::kCuda, options.recipe, 1).interior,
       .plugin_path = options.plugin_path});
  facts.compute_flops_per_s = rate_of_model(spec, options, facts, *device);
}

}  // namespace strata::session

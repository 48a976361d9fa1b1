// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"
#include "kernels/device.h"

namespace strata::exec {

struct ComputeProbe {
  const model::ModelSpec& spec;
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape;
  kernels::Device& device;
  int rounds = 2;  // the fastest counts; one more round before them warms up
  // A segment whose round takes longer has no others.
  double long_s = std::numeric_limits<double>::infinity();
  double recomputed = 1;  // the share of interiors that the run recomputes
  // The most of the device's memory that may be used at once.
  int64_t device_bytes = std::numeric_limits<int64_t>::max();
};

// Measures the operations per second that forward, recompute and backward of this model reach at
// this micro-batch shape, with operations counted as in model::Footprint, so that they predict a
// plan's compute ops. Measures one segment of each kind and weights it by its number in the model.
// Each call is an op of a queue, as an executor issues it. A device with memory of its own gives
// the times; on the host, the clock does.
//
// Memory: weights, gradients, interior and workspace of one segment at a time. Returns 0 when one
// takes more than `device_bytes`. Throws Error as the device does.
double probe_compute(const ComputeProbe& probe);

// The same of a transformer block of a small model.
struct BlockProbe {
  int64_t hidden = 0;
  int64_t feed_forward = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  model::BatchShape shape;
};
double probe_block(const BlockProbe& block, Recipe recipe, kernels::Device& device);

}  // namespace strata::exec

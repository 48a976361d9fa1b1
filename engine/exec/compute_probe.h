// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/model/footprint.h"
#include "engine/model/spec.h"
#include "kernels/backend.h"

namespace strata::exec {

struct ComputeProbe {
  const model::ModelSpec& spec;
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape;
  const kernels::Backend& backend;
  int threads = 1;
  int rounds = 2;  // the fastest counts; one more round before them warms up
};

// Measures the operations per second that forward, recompute and backward of this model reach at
// this micro-batch shape, with operations counted as in model::Footprint, so that they predict a
// plan's compute ops. Measures one segment of each kind and weights it by its number in the model.
// Memory: weights, gradients, interior and workspace of one segment at a time.
double probe_compute(const ComputeProbe& probe);

}  // namespace strata::exec

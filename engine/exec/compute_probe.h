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
  int rounds = 2;  // the fastest counts, after one that warms up
};

// Operations per second that forward, recompute and backward of this model reach at this
// micro-batch shape, operations counted as footprints count them: what a plan's compute ops will
// take, everything that a segment does included. Measures one segment of each kind and weighs them
// as the model does. Memory: weights, gradients, interior and workspace of one segment at a time.
double probe_compute(const ComputeProbe& probe);

}  // namespace strata::exec

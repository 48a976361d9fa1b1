// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

// Where the time of compute ops goes, by kernel and shape.
namespace strata::bench {

// cpu_backend() with a clock around every kernel that segments are computed with. Its sums belong
// to the process; only one lane may compute.
const kernels::Backend& timed_backend();

void clear_kernel_times();

// A line for each kernel and shape, the longest first; `runs` divides the sums.
void print_kernel_times(int runs);

}  // namespace strata::bench

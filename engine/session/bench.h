// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/config/options.h"
#include "io/bench_io.h"

// The options of `strata bench io` as those of the benchmark.
namespace strata::session {

// Checks what the option table cannot: that the scratch is large enough for the shapes, and that
// paths are usable. Throws one Error (kUsage) with all problems. Creates nothing.
void check_bench(const config::Options& options);

io::BenchOptions bench_options(const config::Options& options);
// The shapes to measure. Shapes with the same volume are consecutive, so that it is filled once.
std::vector<io::BenchShape> shapes_of(const config::Options& options);

// Sets stripes by the speed of each directory, as in a run. Returns the bytes that measuring it
// wrote; logs where the limit of bytes to write does not allow it.
uint64_t set_weights(io::BenchOptions& options);

}  // namespace strata::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/config/options.h"
#include "io/bench_io.h"

// Turns the options of `strata bench io` into those of the benchmark.
namespace strata::cli {

// Checks what the option table cannot: that the scratch is large enough for the shapes, and that
// paths are usable. Throws one Error (kUsage) with all problems. Creates nothing.
void check_bench(const config::Options& options);

io::BenchOptions bench_options(const config::Options& options);
// The shapes to measure. Shapes with the same volume are consecutive, so that it is filled once.
std::vector<io::BenchShape> shapes_of(const config::Options& options);

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/config/options.h"
#include "io/bench_io.h"

// What the options of `strata bench io` ask of the benchmark.
namespace strata::cli {

// What the option table cannot know: whether the scratch is large enough for the shapes, and the
// places are right. Throws one Error (kUsage) with all problems. Makes nothing.
void check_bench(const config::Options& options);

io::BenchOptions bench_options(const config::Options& options);
// Shapes with the same volume follow each other, so that it is filled once.
std::vector<io::BenchShape> shapes_of(const config::Options& options);

}  // namespace strata::cli

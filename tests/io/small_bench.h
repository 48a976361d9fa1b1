// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "aligned_buffer.h"
#include "io/bench_io.h"

namespace strata::io {

// Scratch of 64 MiB, for a tenth of a second.
inline BenchOptions small_bench(const test::TemporaryDirectory& directory) {
  BenchOptions options;
  options.directories = {directory.path()};
  options.bytes = 64 * kMi;
  options.seconds = 0.1;
  options.sample_s = 0.02;
  options.allow_memory_filesystem = true;
  return options;
}

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/bench_io.h"

namespace strata::cli {

// The measurements of a benchmark, for estimating how much they write on drives of unknown speed.
struct WriteQuestion {
  std::vector<io::BenchShape> shapes;
  uint32_t rounds = 0;        // of a comparison; 0: each shape is measured once
  bool compares_fio = false;  // fio writes files of its own
};

// The write rate assumed for each directory, unless a slower rate limit is given.
inline constexpr double kAssumedWriteBytesPerS = 1e9;
double expected_write_bytes(const io::BenchOptions& options, const WriteQuestion& question);

// The warning before measuring that the limit on bytes written is too small at the assumed rate,
// with a sufficient limit; empty when the limit is enough.
std::string write_limit_warning(const io::BenchOptions& options, const WriteQuestion& question);

// Lists the shapes that the limit on bytes written ended early or left out; empty when there are
// none.
std::string ended_by_write_limit(const std::vector<io::BenchResult>& results);

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/bench_io.h"

namespace strata::cli {

// What a benchmark is asked to write: on drives whose speed is not known yet.
struct WriteQuestion {
  std::vector<io::BenchShape> shapes;
  uint32_t rounds = 0;        // of a comparison by turns; 0: each shape is measured once
  bool compares_fio = false;  // which writes files of its own
};

// Each directory is assumed to take so much, where no slower rate limit is given.
inline constexpr double kAssumedWriteBytesPerS = 1e9;
double expected_write_bytes(const io::BenchOptions& options, const WriteQuestion& question);

// What to say before anything is measured, with the limit that would do; empty where the limit on
// bytes written is enough at the assumed rate.
std::string write_limit_warning(const io::BenchOptions& options, const WriteQuestion& question);

// Which of the shapes the limit on bytes written ended early, and which it left out; empty: none.
std::string ended_by_write_limit(const std::vector<io::BenchResult>& results);

}  // namespace strata::cli

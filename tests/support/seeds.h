// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace strata::test {

// The number of seeds that a random test tries: `usual` times the environment's STRATA_SEEDS, which
// tests/run.sh --long and the sanitizer suites set; at least one.
inline uint64_t seeds(uint64_t usual) {
  const char* factor = std::getenv("STRATA_SEEDS");
  const double wanted = static_cast<double>(usual) * (factor == nullptr ? 1 : std::atof(factor));
  return static_cast<uint64_t>(std::max(1.0, std::round(wanted)));
}

}  // namespace strata::test

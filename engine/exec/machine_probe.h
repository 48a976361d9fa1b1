// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/config/machine.h"
#include "io/volume.h"

namespace strata::exec {

struct ProbeOptions {
  int threads = 1;                     // for arithmetic
  DType weights = DType::kF32;         // of the matrix products
  std::vector<std::string> nvme = {};  // scratch directories; empty: drives are not measured
  io::Backend io = io::Backend::kAuto;
  double seconds = 3.0;           // about how long all of it takes, half of it for drives
  int64_t bytes_max = 128 << 20;  // of memory, and twice that on the drives, that the probe may use
  int64_t emulated_device_bytes = 0;  // above 0: describe the emulated device with this much memory
};

// Measures what this machine sustains, each figure a median of short runs, with the kernels and the
// rings that a run uses. Scratch files are gone when it returns. Throws Error where a directory
// cannot be used, as a run there would.
config::Machine probe_machine(const ProbeOptions& options);

// The profile from the cache in `directory`, or a fresh one that is then cached there. Memory and
// cores are always read anew. A cache that cannot be read or written is none.
config::Machine cached_machine(const ProbeOptions& options, const std::string& directory,
                               const std::string& version);

}  // namespace strata::exec

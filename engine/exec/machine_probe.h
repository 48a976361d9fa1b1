// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/machine.h"
#include "engine/exec/drive_probe.h"
#include "kernels/backend.h"

// Measures the machine that a run is about to use, with the code that the run will use.
namespace strata::exec {

struct ProbeOptions {
  std::string name = "measured";
  const kernels::Backend* backend = nullptr;
  config::DeviceKind device = config::DeviceKind::kCpu;  // or kEmulated
  int threads = 1;
  DriveProbeOptions drive;           // no directories: no figures of a drive
  double seconds = 3;                // about, in total
  int64_t memory_bytes = 192 << 20;  // about the most that is allocated at once
  // Rates of products by processor time over the threads instead of by the clock: for comparisons
  // on a machine that others use at the same time. Waiting does not count.
  bool processor_time = false;
};

// Takes all cores for `seconds`. Throws Error where the directories cannot be used.
config::Machine probe_machine(const ProbeOptions& options);

// The profile in `cache_directory`, or a new one, which is left there; the directory is made if it
// is missing. A file that cannot be read is measured again; a directory that cannot be written is
// no error. `version` is the program's; `was_measured` may be null.
config::Machine machine_for(const std::string& cache_directory, const std::string& version,
                            const ProbeOptions& options, bool* was_measured = nullptr);

// The same with figures of the drives that were measured with more care than a probe takes; later
// calls of machine_for() find them. `path` gets the file they are in, or is emptied where it could
// not be written.
config::Machine machine_with(const std::string& cache_directory, const std::string& version,
                             const ProbeOptions& options, const DriveFigures& drive,
                             std::string* path);

// Puts figures of drives into a profile that has the rate of checksums.
void set_drive(const DriveFigures& drive, config::Machine& machine);

// Parts of the above, for benchmarks that compare with them in the same run: each takes about
// `seconds` and returns a median.
double probe_products(const ProbeOptions& options, DType dtype, double seconds);  // operations/s
double probe_memory(const ProbeOptions& options, double seconds);     // bytes/s, read and written
double probe_optimizer(const ProbeOptions& options, double seconds);  // bytes/s, read and written

}  // namespace strata::exec

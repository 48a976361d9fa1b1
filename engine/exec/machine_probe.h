// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/comm/network_probe.h"
#include "engine/config/machine.h"
#include "engine/exec/drive_probe.h"
#include "kernels/device.h"

// Measures the machine for a run, with the code that the run will use.
namespace strata::exec {

struct ProbeOptions {
  static constexpr int64_t kLeastBytes = 24 << 20;
  // With less, the products, the block and the transfers to drives are smaller.
  static constexpr int64_t kAmpleBytes = 56 << 20;
  bool is_ample() const { return memory_bytes >= kAmpleBytes; }

  std::string name = "measured";
  const kernels::Backend* backend = nullptr;
  config::DeviceKind device = config::DeviceKind::kCpu;
  std::string gpu;  // what it is, where the device is one: a profile is of that
  int64_t gpu_bytes = 0;
  std::function<std::unique_ptr<kernels::Device>(DType interior)> open_gpu = nullptr;
  int threads = 1;
  comm::NetworkFigures network;      // what several machines have measured together
  DriveProbeOptions drive;           // without directories, drives are not measured
  double seconds = 3;                // about, in total
  int64_t memory_bytes = 192 << 20;  // the most that is allocated at once, at least kLeastBytes
  // Measures products by the threads' processor time instead of the clock, which leaves out
  // waiting: for comparisons on a shared machine.
  bool processor_time = false;
};

// Uses all cores for `seconds`. Throws Error when the directories cannot be used.
config::Machine probe_machine(const ProbeOptions& options);

// Returns the profile in `cache_directory`, or measures a new one and writes it there; a missing
// directory is created. A profile that cannot be read is measured again; a directory that cannot be
// written is not an error. Figures of the network are kept there too. `version` is the program's;
// `was_measured` may be null.
config::Machine machine_for(const std::string& cache_directory, const std::string& version,
                            const ProbeOptions& options, bool* was_measured = nullptr);

// As machine_for(), with given figures of the drives from a longer measurement, which later calls
// of machine_for() find. Sets `path` to the file of the profile, or to "" when it could not be
// written.
config::Machine machine_with(const std::string& cache_directory, const std::string& version,
                             const ProbeOptions& options, const DriveFigures& drive,
                             std::string* path);

// Sets the figures of the network, if there are any.
void set_network(const comm::NetworkFigures& network, config::Machine& machine);

// Sets the figures of drives in a profile that already has the rate of checksums.
void set_drive(const DriveFigures& drive, config::Machine& machine);

// Parts of the probe, for benchmarks that compare with them in the same run. Each takes about
// `seconds` and returns a median.
double probe_products(const ProbeOptions& options, DType dtype, double seconds);  // operations/s
double probe_memory(const ProbeOptions& options, double seconds);     // bytes/s, read and written
double probe_optimizer(const ProbeOptions& options, double seconds);  // bytes/s, read and written

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata::plan {

// What the machine does in a second, as the planner, the simulator and the lower bound see it. A
// rate of zero means that the machine has no such resource; a plan that uses it anyway is a bug.
struct Rates {
  // The drive (or the stripe). Half duplex: reads and writes take turns on one timeline. Otherwise
  // both directions move at once, at `mixed_bytes_per_s` together, in the proportion of their rates
  // alone (zero: each direction has its own rate whatever the other does).
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  bool half_duplex = true;
  double mixed_bytes_per_s = 0;
  double io_latency_s = 0;  // after the last byte, until the completion is seen

  double matmul_flops_per_s = 0;
  double compute_overhead_s = 0;  // of each compute op
  double memory_bytes_per_s = 0;
  double optimizer_overhead_s = 0;  // of each op on the optimizer lane

  // Compute and optimizer on the same cores: while both are busy, each runs at `shared_speed`.
  bool shared_cores = true;
  double shared_speed = 0.5;
  int cores = 1;
  double io_cpu_s_per_byte =
      0;  // core time that moving a byte takes from the optimizer (and compute)

  // Of a discrete device: what an update there reads and writes.
  double device_memory_bytes_per_s = 0;
  double upload_bytes_per_s = 0;
  double download_bytes_per_s = 0;
  double transfer_latency_s = 0;  // of each upload and download
  double comm_bytes_per_s = 0;
  double comm_latency_s = 0;  // of each collective
};

}  // namespace strata::plan

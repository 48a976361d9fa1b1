// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/devices.h"

namespace strata::config {

// The capabilities of one node, in the figures that the planner needs: measured once, or given in a
// file for another machine. Rates are sustained rates of the whole node unless a comment says "per
// device". On a cpu device the transfer rates have no meaning and are 0.
struct Machine {
  std::string name = "unnamed";
  DeviceKind device = DeviceKind::kCpu;
  int64_t device_count = 1;
  int64_t cores = 0;
  int64_t host_bytes = 0;    // what all processes of a run may use together
  int64_t device_bytes = 0;  // per device; 0 for cpu

  double matmul_flops_per_s = 0;         // per device: large matrix products, of f32
  double memory_bytes_per_s = 0;         // host memory, reads and writes together
  double device_memory_bytes_per_s = 0;  // per device
  double upload_bytes_per_s = 0;         // per device, host to device
  double download_bytes_per_s = 0;       // per device, device to host
  double peer_bytes_per_s = 0;           // per device, to others of its node at once; 0: not known
  double network_bytes_per_s = 0;        // between nodes, each direction
  double network_latency_s = 0;          // of each exchange between nodes; 0: op_overhead_s

  int64_t nvme_count = 0;             // drives that the figures below are of; 0: not known
  int64_t nvme_bytes = 0;             // that they hold, all together; 0: not known
  double nvme_read_bytes_per_s = 0;   // only reads
  double nvme_write_bytes_per_s = 0;  // only writes
  double nvme_mixed_bytes_per_s = 0;  // both at once, half of the bytes each
  double nvme_latency_s = 0;          // of one large request on an idle drive
  double nvme_rated_write_bytes = 0;  // of all drives, over their life; 0: not known
  // The share of stripes for each scratch directory when their speeds differ; empty: equal.
  std::vector<double> nvme_weights;
  double cpu_s_per_io_gb = 0;  // core seconds for 1e9 bytes moved, without checksums

  double checksum_bytes_per_s = 0;   // one core
  double optimizer_bytes_per_s = 0;  // the fused update with all cores: bytes read and written

  // Refinements; 0: not measured.
  double matmul_bf16_flops_per_s = 0;  // per device: products with bf16 weights
  double step_flops_per_s = 0;       // per device: forward and backward of a transformer block, all
  double step_bf16_flops_per_s = 0;  // its ops in the time, the operations of its products counted
  double overlap_speed = 0;  // of compute and optimizer on the same cores: each to itself alone
  double op_overhead_s = 0;  // from the end of an op to the start of one that waits for it
  double device_op_overhead_s = 0;  // what an op adds on a queue of a device, in a row of ops
};

// The profiles of examples/machines/.
inline constexpr std::string_view kExampleMachines[] = {"h200-8nvme.toml", "laptop-24gb.toml",
                                                        "rtx4090-4nvme.toml", "small-2core.toml"};

// Reads a profile file. Throws Error (kConfig) that lists every problem: unknown keys, with the
// nearest known one; rates that are negative or not finite; missing figures that the planner needs.
Machine parse_machine(std::string_view toml, std::string_view name);
Machine read_machine(const std::string& path);

// A text from which parse_machine reads the same figures.
std::string to_toml(const Machine& machine);
std::string to_json(const Machine& machine);

// The figures for a run on several machines: the worse one of each.
Machine worst_of(const Machine& a, const Machine& b);

// The path for a measured profile: a file in `directory` whose name depends on what the figures
// depend on, so that a profile measured on another host, for other scratch directories or by
// another version has another name.
struct MachineKey {
  std::string host;
  std::string nvme;     // the scratch directories as given
  std::string version;  // of strata
};
std::string machine_cache_path(const std::string& directory, const MachineKey& key);

// Writes a profile atomically: a reader never sees a part of it. Throws Error (kIo).
void write_machine(const std::string& path, const Machine& machine);

}  // namespace strata::config

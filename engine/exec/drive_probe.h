// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/channel.h"
#include "io/volume.h"

namespace strata::exec {

struct DriveProbeOptions {
  std::vector<std::string> directories;
  io::Backend backend = io::Backend::kAuto;
  int io_depth = 8;  // requests in flight on each lane
  int64_t transfer_bytes = 4 << 20;
  int64_t file_bytes = 512 << 20;  // of all files together; less where there is less room
  double deadline_s = 60;          // of one request
  bool direct = true;
  bool allow_memory_filesystem = false;
};

// The speed of the drives for the lanes of an executor, with checksums as in a run.
struct DriveFigures {
  int64_t count = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double mixed_bytes_per_s = 0;  // both directions together, half of the bytes each
  double latency_s = 0;          // of one 1 MiB read on an idle drive
  double cpu_s_per_byte = 0;     // of all threads of this process, checksums included
  std::vector<double> weights;   // share of stripes of each directory; empty: equal
};

// Takes about `seconds`: a quarter each for first writes, writes, reads and both, through an
// io::Volume and one io::Channel for each lane. Before that it briefly measures each of several
// directories on different drives, to stripe by their speed. Throws Error (kDoesNotFit) when there
// is too little space, and what a volume throws.
DriveFigures probe_drive(const DriveProbeOptions& options, double seconds);

// The share of stripes for each directory by its speed (io::measure_weights).
std::vector<double> probe_weights(const DriveProbeOptions& options, double seconds);

// Processor time of all threads of this process so far.
double process_cpu_s();

// Bytes a second that one core checks, in blocks of a volume's size. Takes up to 32 MiB of memory.
double probe_checksum(double seconds, int64_t memory_bytes);

}  // namespace strata::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine.h"
#include "engine/exec/drive_probe.h"
#include "io/bench_io.h"

namespace strata::cli {

// A shape measured for less than this says little of a drive.
inline constexpr double kCarefulS = 1;

// What results of `strata bench io` say of the drives in a machine profile: read, write and mixed
// of one shape with checksums, the one nearest to what a run does. Where a rate fell off a cliff,
// what was left of it counts.
struct MeasuredDrive {
  exec::DriveFigures figures;  // without a latency
  io::BenchShape shape;        // of the three; the mode says nothing
  double shortest_s = 0;       // of the three measurements

  // Of less time, it does not replace what was measured before.
  bool is_careful() const { return shortest_s >= kCarefulS; }
};
// Nothing where no shape has all three.
std::optional<MeasuredDrive> measured_drive(const std::vector<io::BenchResult>& results);

// Sees to it that `idle` is an idle drive's latency, measured for the shape that the profile takes
// from `results`: a request of a run's size at a time, on the files of that shape. Is called after
// each result, while those files are there; with `last` they are made again where that is within
// the limit on bytes written, and where it is not, what is there is read.
void measure_latency(io::IoBench& bench, const io::BenchOptions& options,
                     const std::vector<io::BenchResult>& results, bool last,
                     std::optional<io::BenchResult>& idle);

struct MeasuredMachine {
  config::Machine machine;
  std::string path;  // where `strata plan` and `train` find it; empty where it is not kept
};
// This machine's profile with these drives; what it lacks is measured in a few seconds. Kept for
// later runs with the same directories when `keep`.
MeasuredMachine measured_machine(const std::vector<std::string>& directories,
                                 const exec::DriveFigures& drive, bool keep);

}  // namespace strata::cli

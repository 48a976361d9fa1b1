// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine.h"
#include "engine/exec/drive_probe.h"
#include "io/bench_io.h"

namespace strata::cli {

// A measurement shorter than this says little about a drive.
inline constexpr double kCarefulS = 1;

// The drive figures for a machine profile, from results of `strata bench io`: the read, write and
// mixed rates of the shape with checksums that is most like a run's. When a rate fell during the
// measurement (find_cliff), the lower rate counts.
struct MeasuredDrive {
  exec::DriveFigures figures;  // without a latency
  io::BenchShape shape;        // of the three; its mode has no meaning
  double shortest_s = 0;       // of the three measurements

  // A careless measurement does not replace an earlier one.
  bool is_careful() const { return shortest_s >= kCarefulS; }
};
// nullopt when no shape has all three rates.
std::optional<MeasuredDrive> measured_drive(const std::vector<io::BenchResult>& results);

// Sets `idle` to an idle drive's latency for the shape that the profile takes from `results`: one
// request of a run's size at a time, on the files of that shape. It is called after each result,
// while these files exist. With `last`, the files are created again if the limit on bytes written
// allows; otherwise the existing files are read.
void measure_latency(io::IoBench& bench, const io::BenchOptions& options,
                     const std::vector<io::BenchResult>& results, bool last,
                     std::optional<io::BenchResult>& idle);

struct MeasuredMachine {
  config::Machine machine;
  std::string path;  // where `strata plan` and `train` find it; empty: not kept
};
// Returns this machine's profile with these drives; missing figures are measured in a few seconds.
// With `keep`, the profile is kept for later runs with the same directories.
MeasuredMachine measured_machine(const std::vector<std::string>& directories,
                                 const exec::DriveFigures& drive, bool keep);

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine.h"
#include "engine/exec/drive_probe.h"
#include "io/bench_io.h"

namespace strata::cli {

// What results of `strata bench io` say of the drives in a machine profile: read, write and mixed
// of one shape with checksums, the one nearest to what a run does. Where a rate fell off a cliff,
// what was left of it counts. Nothing where no shape has all three. `latency_s` is taken over.
std::optional<exec::DriveFigures> drive_figures(const std::vector<io::BenchResult>& results,
                                                double latency_s);

// The shape in which an idle drive's latency is measured: what the volume is now, one request.
io::BenchShape latency_shape(const io::BenchShape& last);

struct MeasuredMachine {
  config::Machine machine;
  std::string path;  // where `strata plan` and `train` find it; empty where it is not kept
};
// This machine's profile with these drives; what it lacks is measured in a few seconds. Kept for
// later runs with the same directories when `keep`.
MeasuredMachine measured_machine(const std::vector<std::string>& directories,
                                 const exec::DriveFigures& drive, bool keep);

}  // namespace strata::cli

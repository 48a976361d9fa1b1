// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// A variable of the environment; null when it is not set.
using Environment = std::function<const char*(const char*)>;

// The checks of `strata doctor` for processors, memory, limits, the kernel and the launcher.
// Changes nothing. Tests set `root`, which is put before /proc and /sys.
std::vector<DoctorLine> check_machine(const Environment& environment, const std::string& root = "");

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// A variable of the environment; null when it is not set.
using Environment = std::function<const char*(const char*)>;

// What `strata doctor` finds out about processors, memory, limits, the kernel and the launcher.
// Changes nothing. `root` is put before /proc and /sys; tests give a directory.
std::vector<DoctorLine> check_machine(const Environment& environment, const std::string& root = "");

}  // namespace strata::cli

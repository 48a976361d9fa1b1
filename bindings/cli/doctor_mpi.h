// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// The check of `strata doctor` for MPI: which one runs would use, or why none. Starts nothing.
DoctorLine check_mpi(const std::string& plugin_path);

}  // namespace strata::cli

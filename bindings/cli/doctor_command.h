// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"
#include "bindings/cli/doctor_machine.h"
#include "engine/config/options.h"

namespace strata::cli {

// `strata doctor`: prints the findings on standard output, as a table or with --json as JSON.
// Returns the exit code: 2 if any line is FAIL, otherwise 0.
int run_doctor(const config::Options& options, const Environment& environment);

// The findings as lines of text, each followed by its fix, with totals at the end; and as a JSON
// array.
std::string doctor_table(const std::vector<DoctorLine>& lines);
std::string doctor_json(const std::vector<DoctorLine>& lines);
int doctor_exit_code(const std::vector<DoctorLine>& lines);

}  // namespace strata::cli

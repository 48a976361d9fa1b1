// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/environment.h"

// The program's answers to what the engine reports: log lines go to standard error, and a drive
// that hangs ends the process with exit code 4.
namespace strata::cli {

// `hang_after_s`: of --io-deadline.
Sinks process_sinks(double hang_after_s);

// What a command prints first when a hang ends the process; other threads may still run. Returns
// the exit code; `code` is the one of the error.
using HangReport = int (*)(int code);
void set_hang_report(HangReport report);

// The program was told to end: drives that do not answer are waited for only a moment. Safe in a
// signal handler.
void close_now();

}  // namespace strata::cli

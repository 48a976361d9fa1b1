// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/environment.h"

// How the program handles reports of the engine: log lines go to standard error, and a drive that
// hangs ends the process with exit code 4.
namespace strata::cli {

// `hang_after_s` is the value of --io-deadline.
Sinks process_sinks(double hang_after_s);

// A command's function that prints its results before a hang ends the process; other threads may
// still run. It gets the exit code of the error and returns the exit code to use.
using HangReport = int (*)(int code);
void set_hang_report(HangReport report);

// Called when the program was told to end: from then on it waits only a moment for drives that do
// not answer. Safe in a signal handler.
void close_now();

}  // namespace strata::cli

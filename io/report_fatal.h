// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ring whose drive hangs for good ends the process (ring.h), since memory that the kernel still
// holds must be neither freed nor used. Here a program says what to print first.
namespace strata::io {

// Called once, on the thread of the ring that ends the process, before the ring's error is printed;
// other threads may still run. Returns the exit code; `code` is the ring's own.
using FatalReport = int (*)(int code);

// Null: nothing is printed. Threads: any.
void set_fatal_report(FatalReport report);
// Calls it, at most once in the life of the process; returns the exit code.
int report_fatal(int code);

// From now on a ring that closes waits for its drive only for a moment, not until the deadline: the
// program was told to end. Safe in a signal handler.
void close_now();
bool closes_now();

}  // namespace strata::io

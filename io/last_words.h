// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ring whose drive hangs for good ends the process (ring.h), since it must neither free nor use
// memory that the kernel still holds. This is what a program has to say about that.
namespace strata::io {

// Called once, by the ring that ends the process, on its thread and before its error is printed.
// Others may still run. Returns the exit code; `code` is the ring's own.
using LastWords = int (*)(int code);

// Null: none. Threads: any.
void set_last_words(LastWords words);
// Has them said, at most once in a process's life; returns the exit code.
int say_last_words(int code);

// From now on a ring that closes waits for its drive a moment only, and no longer until the
// deadline: of a program that was told to end. Safe in a signal handler.
void close_without_patience();
bool closes_without_patience();

}  // namespace strata::io

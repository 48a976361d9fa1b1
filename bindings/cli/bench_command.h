// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/completion.h"

namespace strata::cli {

// `strata bench io ...`; argv[0] is "bench". Returns the exit code: 0, or 1 when --baseline finds a
// shape slower. Errors of the world are thrown as Error; usage errors are printed and return 2.
int bench_command(int argc, char** argv);

// `bench`, for completion.
config::CompletedCommand bench_completion();

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace strata::cli {

// `strata bench io ...`; argv[0] is "bench". Returns the exit code: 0, or 1 when --baseline finds a
// shape slower. Errors of the world are thrown as Error; usage errors are printed and return 2.
int bench_command(int argc, char** argv);

// What may follow `strata bench`, for completion.
std::vector<std::string> bench_words();

}  // namespace strata::cli

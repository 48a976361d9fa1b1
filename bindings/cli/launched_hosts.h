// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/host_file.h"
#include "engine/config/options.h"

namespace strata::cli {

// Runs `strata launch` for each machine of a host file by ssh, and waits for all of them. They get
// the job's secret as the first line of their standard input, and end in good order when that input
// ends: when a signal asks this process to stop, when it is gone, or when a machine has failed for
// good. A second request ends each ssh itself.
//
// `launch`: the options of strata launch; `command`: what follows "--". Returns 0, or the exit code
// of the first machine whose own ranks failed; with restarts 0 where the first machine's is 0.
// Threads: one; once in a process. Failure: Error.
int run_on_hosts(const HostFile& hosts, const config::Options& launch,
                 const std::vector<std::string>& command);

// On such a machine: takes the secret from standard input and puts it into the environment.
void take_secret_from_input();

}  // namespace strata::cli

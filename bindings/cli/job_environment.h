// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/train/job.h"

// What `strata launch` tells the processes that it starts: environment variables.
namespace strata::cli {

// The exit code of a rank that ends because another one did, for which the launching process has
// the other's.
inline constexpr int kHeardExitCode = 75;

// The environment of one rank, as "NAME=VALUE": this process's, with the variables of the rank.
std::vector<std::string> environment_of(const train::MeetingPlace& place);

// True in a process that `strata launch` started for a rank other than 0, which prints nothing but
// what concerns this rank.
bool is_following_rank();

// The job that this process is a rank of; null when `strata launch` did not start it. The process
// then ends when the launching process does. Throws Error (kConfig) for ranks that are not those of
// the job.
std::unique_ptr<train::Job> job_of_environment(const config::Options& options);

}  // namespace strata::cli

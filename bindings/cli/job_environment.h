// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/job_starters.h"
#include "engine/config/options.h"
#include "engine/train/job.h"

// The environment of ranks: what `strata launch` tells the processes that it starts, and what other
// starters tell theirs (job_starters.h).
namespace strata::cli {

// The exit code of a rank that ends because another one did, for which the launching process has
// the other's.
inline constexpr int kHeardExitCode = 75;
// Set where strata launch --hosts started the launching process.
inline constexpr const char* kByHosts = "STRATA_BY_HOSTS";
// Of a launching process whose ranks lost those of others, or never started.
inline constexpr int kPeerIsGone = 4;

// The place of this process among ranks; nothing when it is alone. Throws as started_rank() does.
std::optional<StartedRank> rank_of_environment();

// How the ranks of one launched job meet.
struct LaunchedJob {
  std::string meeting = {};  // a directory, on one machine
  // On several machines:
  std::string rendezvous = {};   // HOST:PORT
  std::string secret_file = {};  // empty: the secret is in the environment
  std::string interface = {};
  int64_t deadline_s = 0;
};

// The environment of one rank, as "NAME=VALUE": this process's, with the variables of the rank.
std::vector<std::string> environment_of(const LaunchedJob& job, const StartedRank& rank);

// The secret that the environment gives to ranks on several machines. Throws Error (kConfig) when
// there is none, or it cannot be used.
std::string secret_of_environment();

// The command line that resumes a run of this process and its ranks.
std::string resuming_command(const config::Options& options);

// The job that this process is a rank of; null when it is alone. A process that `strata launch`
// started then ends when the launching process does. Throws Error (kConfig) for ranks that are not
// those of the job, and where it is not said how ranks on several machines meet.
std::unique_ptr<train::Job> job_of_environment(const config::Options& options);

}  // namespace strata::cli

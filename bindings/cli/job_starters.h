// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace strata::cli {

// The value of a variable of the environment; null when it is not set.
using Variables = std::function<const char*(const char* name)>;

// The place of a process among the ranks of a job, as the program that started it says.
struct StartedRank {
  std::string starter = {};  // "strata launch", "torchrun", "Open MPI", "MPICH", "Slurm"
  int rank = 0;
  int ranks = 1;
  int ranks_on_node = 1;     // on each machine
  std::string address = {};  // HOST:PORT where rank 0 may listen; empty: none is named
  std::string job = {};      // names the job among those of this machine; empty: nothing does
  int launcher = 0;          // the process of strata launch; 0: another program

  int nodes() const { return ranks / ranks_on_node; }
  int node() const { return rank / ranks_on_node; }
};

// The place that the environment gives to this process; nothing for a process that is alone, also
// as the only task of an allocation. `parent` is the process that started this one: variables of
// strata launch count only from there. Pure. Throws Error (kConfig) for variables that are not
// numbers, places that cannot be (machines with different numbers of ranks, or whose ranks do not
// follow each other), and starters that contradict each other, by their names.
std::optional<StartedRank> started_rank(const Variables& variables, int parent);

// What strata launch sets.
inline constexpr const char* kLaunchedRank = "STRATA_RANK";
inline constexpr const char* kLaunchedRanks = "STRATA_RANKS";
inline constexpr const char* kLaunchedOnNode = "STRATA_RANKS_ON_NODE";
inline constexpr const char* kLauncherProcess = "STRATA_LAUNCHER";

}  // namespace strata::cli

// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/job_starters.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace strata::cli {
namespace {

// The variables of a program that starts ranks. Those of a row that are null are not there.
struct Starter {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_rank;     // its index on its machine
  const char* ranks_on_node;  // "2"; Slurm's form for machines that are alike is "2(x3)"
  const char* job[2];         // what distinguishes jobs of one machine
};

// RANK alone is no sign of torchrun: a place needs its first two variables. Slurm's
// SLURM_NTASKS is also there in a batch script, which is one process; that of a step is not.
constexpr Starter kLaunch = {"strata launch", kLaunchedRank,   kLaunchedRanks,
                             nullptr,         kLaunchedOnNode, {}};
constexpr Starter kTorchrun = {"torchrun",         "RANK",
                               "WORLD_SIZE",       "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE", {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}};
constexpr Starter kOpenMpi = {"Open MPI",
                              "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                              {"PMIX_NAMESPACE"}};
constexpr Starter kMpich = {"MPICH",           "PMI_RANK",        "PMI_SIZE",
                            "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {}};
constexpr Starter kSlurm = {"Slurm",
                            "SLURM_PROCID",
                            "SLURM_STEP_NUM_TASKS",
                            "SLURM_LOCALID",
                            "SLURM_STEP_TASKS_PER_NODE",
                            {"SLURM_JOB_ID", "SLURM_STEP_ID"}};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kConfig, "environment: " + what);
}

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : variables_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }

  // The number with which the value begins; what follows goes to `rest`, or must not be there.
  int number(const char* name, std::string* rest = nullptr) const {
    const std::string value = text(name);
    int number = 0;
    const char* end = value.data() + value.size();
    const auto [last, error] = std::from_chars(value.data(), end, number);
    if (rest != nullptr) rest->assign(last, end);
    if (error == std::errc() && (last == end || rest != nullptr) && number >= 0) return number;
    refuse(fmt::format("{}: {}: is not a number (unset it, or start ranks with strata launch)",
                       name, value));
  }

 private:
  const Variables& variables_;
};

// How many ranks each machine has.
int ranks_on_node(const Starter& starter, const StartedRank& place, const Reader& reader) {
  std::string rest;
  const int count = reader.number(starter.ranks_on_node, &rest);
  const bool alike = rest.empty() || (rest.starts_with("(x") && rest.ends_with(")") &&
                                      rest.find(',') == std::string::npos);
  if (alike && count > 0 && place.ranks % count == 0) return count;
  refuse(fmt::format(
      "{}: {}: {} does not put equally many of the {} ranks on each machine (give all "
      "machines equally many)",
      starter.ranks_on_node, reader.text(starter.ranks_on_node), starter.name, place.ranks));
}

// The variables of an outer job may be there beside those of another starter, so what they say is
// looked at only when this starter's place is taken.
struct Place {
  const Starter* starter;
  int rank;
  int ranks;
};

std::optional<Place> place_by(const Starter& starter, const Reader& reader) {
  if (!reader.has(starter.rank) || !reader.has(starter.ranks)) return std::nullopt;
  const Place place = {&starter, reader.number(starter.rank), reader.number(starter.ranks)};
  if (place.ranks <= 1) return std::nullopt;
  if (place.rank < place.ranks) return place;
  refuse(
      fmt::format("{}: {}: {} has the ranks 0 to {} (unset its variables, if it did not start "
                  "this process)",
                  starter.rank, place.rank, starter.name, place.ranks - 1));
}

StartedRank details(const Place& place, const Reader& reader) {
  const Starter& starter = *place.starter;
  StartedRank all = {.starter = starter.name, .rank = place.rank, .ranks = place.ranks};
  if (!reader.has(starter.ranks_on_node)) {
    refuse(fmt::format("{}: is not set, and {} says rank {} of {} (start ranks with strata launch)",
                       starter.ranks_on_node, starter.name, place.rank, place.ranks));
  }
  all.ranks_on_node = ranks_on_node(starter, all, reader);
  if (starter.local_rank != nullptr &&
      reader.number(starter.local_rank) != place.rank % all.ranks_on_node) {
    refuse(
        fmt::format("{}: {}: rank {} of {} is out of order among the {} of a machine: ranks "
                    "of a machine follow each other (start them with srun --distribution=block, or "
                    "mpirun --map-by slot)",
                    starter.local_rank, reader.text(starter.local_rank), place.rank, place.ranks,
                    all.ranks_on_node));
  }
  for (const char* variable : starter.job) {
    if (!reader.has(variable)) continue;
    all.job += (all.job.empty() ? "" : "-") + reader.text(variable);
  }
  return all;
}

// The store that torchrun's agent serves is at the port that it names, and the next one is free.
std::string address_by_torchrun(const Reader& reader) {
  if (!reader.has("MASTER_ADDR") || !reader.has("MASTER_PORT")) return "";
  const bool is_taken = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const std::string host = reader.text("MASTER_ADDR");
  const int port = reader.number("MASTER_PORT") + (is_taken ? 1 : 0);
  const bool bracketed = host.find(':') != std::string::npos;
  return bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

// True where Slurm only started, once on each machine, what started this process. Those of MPI
// start their daemons by it, though not on the first machine.
bool carries(const Place& slurm, const StartedRank& inner, const Reader& reader) {
  std::string rest;
  if (slurm.starter != &kSlurm || reader.number(kSlurm.ranks_on_node, &rest) != 1) return false;
  const bool by_mpi = inner.starter == kOpenMpi.name || inner.starter == kMpich.name;
  return by_mpi || (slurm.ranks == inner.nodes() && slurm.rank == inner.node());
}

}  // namespace

std::optional<StartedRank> started_rank(const Variables& variables, int parent) {
  const Reader reader(variables);
  if (reader.has(kLauncherProcess) && reader.number(kLauncherProcess) == parent) {
    StartedRank launched = {.starter = kLaunch.name,
                            .rank = reader.number(kLaunchedRank),
                            .ranks = reader.number(kLaunchedRanks),
                            .launcher = parent};
    launched.ranks_on_node = ranks_on_node(kLaunch, launched, reader);
    return launched;
  }
  std::vector<Place> places;
  // The inner ones first.
  for (const Starter* starter : {&kTorchrun, &kOpenMpi, &kMpich, &kSlurm}) {
    if (const auto place = place_by(*starter, reader)) places.push_back(*place);
  }
  if (places.empty()) return std::nullopt;
  // Of those that say the same, one that also says how many ranks a machine has.
  const Place* chosen = &places.front();
  for (const Place& place : places) {
    const bool knows_more =
        !reader.has(chosen->starter->ranks_on_node) && reader.has(place.starter->ranks_on_node);
    if (place.rank == chosen->rank && place.ranks == chosen->ranks && knows_more) chosen = &place;
  }
  StartedRank result = details(*chosen, reader);
  for (const Place& place : places) {
    if ((place.rank == chosen->rank && place.ranks == chosen->ranks) ||
        carries(place, result, reader)) {
      continue;
    }
    refuse(fmt::format(
        "{} says rank {} of {} ({}, {}), and {} says rank {} of {} ({}, {}) (unset "
        "the variables of the one that did not start this process)",
        result.starter, result.rank, result.ranks, chosen->starter->rank, chosen->starter->ranks,
        place.starter->name, place.rank, place.ranks, place.starter->rank, place.starter->ranks));
  }
  if (chosen->starter == &kTorchrun) result.address = address_by_torchrun(reader);
  return result;
}

}  // namespace strata::cli

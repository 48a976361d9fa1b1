// SPDX-License-Identifier: Apache-2.0
// What a rank learns from the variables of the program that started it: a place, that it is alone,
// or why the variables cannot be right.
#include "bindings/cli/job_starters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "bindings/cli/job_environment.h"
#include "engine/base/error.h"

namespace strata::cli {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr int kParent = 77;

std::optional<StartedRank> place_in(const Environment& environment) {
  return started_rank(
      [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      kParent);
}

Environment joined(const Environment& a, const Environment& b) {
  Environment all = a;
  all.insert(b.begin(), b.end());
  return all;
}

const Environment kLaunched = {{"STRATA_RANK", "3"},
                               {"STRATA_RANKS", "4"},
                               {"STRATA_RANKS_ON_NODE", "2"},
                               {"STRATA_LAUNCHER", "77"}};
const Environment kTorch = {{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Environment kTorchByHand = {{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"LOCAL_RANK", "0"},
                                  {"LOCAL_WORLD_SIZE", "1"},
                                  {"MASTER_ADDR", "fd::1"},
                                  {"MASTER_PORT", "29500"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "4711"}};
const Environment kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
// A batch script: SLURM_NTASKS is what was asked for, and SLURM_PROCID that of the script.
const Environment kAllocation = {{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "6"},
                                 {"SLURM_PROCID", "0"},  {"SLURM_LOCALID", "0"},
                                 {"SLURM_NODEID", "0"},  {"SLURM_TASKS_PER_NODE", "2(x3)"}};
const Environment kStep = {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                           {"SLURM_PROCID", "5"},         {"SLURM_LOCALID", "1"}};
// srun with one task on each of two machines, which started torchrun.
const Environment kCarrier = {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                              {"SLURM_PROCID", "1"},         {"SLURM_LOCALID", "0"}};

TEST(JobStarters, TheEnvironmentGivesThePlace) {
  struct Row {
    const char* what;
    Environment environment;
    StartedRank place;
  };
  const Row rows[] = {
      {"strata launch",
       kLaunched,
       {.starter = "strata launch", .rank = 3, .ranks = 4, .ranks_on_node = 2, .launcher = 77}},
      {"strata launch within a step",
       joined(kLaunched, kStep),
       {.starter = "strata launch", .rank = 3, .ranks = 4, .ranks_on_node = 2, .launcher = 77}},
      {"torchrun, whose store has the port",
       kTorch,
       {.starter = "torchrun",
        .rank = 3,
        .ranks = 4,
        .ranks_on_node = 2,
        .address = "10.0.0.1:29501",
        .job = "29500-0"}},
      {"torchrun's variables set by hand",
       kTorchByHand,
       {.starter = "torchrun",
        .rank = 0,
        .ranks = 2,
        .ranks_on_node = 1,
        .address = "[fd::1]:29500",
        .job = "29500"}},
      {"torchrun on each machine of a step",
       joined(kTorch, kCarrier),
       {.starter = "torchrun",
        .rank = 3,
        .ranks = 4,
        .ranks_on_node = 2,
        .address = "10.0.0.1:29501",
        .job = "29500-0"}},
      {"mpirun",
       kOpenMpi,
       {.starter = "Open MPI", .rank = 1, .ranks = 2, .ranks_on_node = 2, .job = "4711"}},
      {"mpirun in an allocation",
       joined(kOpenMpi, kAllocation),
       {.starter = "Open MPI", .rank = 1, .ranks = 2, .ranks_on_node = 2, .job = "4711"}},
      {"mpirun, whose daemons Slurm started",
       joined(kOpenMpi, kCarrier),
       {.starter = "Open MPI", .rank = 1, .ranks = 2, .ranks_on_node = 2, .job = "4711"}},
      {"mpiexec of MPICH", kMpich, {.starter = "MPICH", .rank = 1, .ranks = 2, .ranks_on_node = 2}},
      {"srun",
       joined(kStep, kAllocation),
       {.starter = "Slurm", .rank = 5, .ranks = 6, .ranks_on_node = 2, .job = "12-0"}},
      {"srun --mpi=pmi2",
       joined(kStep, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}),
       {.starter = "Slurm", .rank = 5, .ranks = 6, .ranks_on_node = 2, .job = "12-0"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const auto place = place_in(row.environment);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->starter, row.place.starter);
    EXPECT_EQ(place->rank, row.place.rank);
    EXPECT_EQ(place->ranks, row.place.ranks);
    EXPECT_EQ(place->ranks_on_node, row.place.ranks_on_node);
    EXPECT_EQ(place->address, row.place.address);
    EXPECT_EQ(place->job, row.place.job);
    EXPECT_EQ(place->launcher, row.place.launcher);
  }
}

TEST(JobStarters, AProcessThatIsAloneHasNoPlace) {
  Environment other_parent = kLaunched;
  other_parent["STRATA_LAUNCHER"] = "78";
  const Environment alone[] = {
      {},
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
      {{"RANK", "5"}},  // of something else
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
      kAllocation,
      joined(kAllocation, {{"SLURM_STEP_NUM_TASKS", "1"}}),
      other_parent,
  };
  for (size_t i = 0; i < std::size(alone); ++i) {
    EXPECT_FALSE(place_in(alone[i])) << "row " << i;
  }
}

TEST(JobStarters, GroupsOfGpusOfOneMachineStayOnIt) {
  constexpr const char* kName = "NCCL_SOCKET_IFNAME";
  unsetenv(kName);
  EXPECT_EQ(job_of_environment({}), nullptr);
  EXPECT_STREQ(std::getenv(kName), "=lo");
  setenv(kName, "eth7", 1);
  EXPECT_EQ(job_of_environment({}), nullptr);
  EXPECT_STREQ(std::getenv(kName), "eth7");
  unsetenv(kName);
}

TEST(JobStarters, WhatCannotBeIsRefusedByName) {
  const auto with = [](Environment environment, const char* name, const char* value) {
    environment[name] = value;
    return environment;
  };
  Environment no_local = kMpich;
  no_local.erase("MPI_LOCALNRANKS");
  struct Row {
    Environment environment;
    const char* words;
  };
  const Row rows[] = {
      {with(kTorch, "RANK", "three"), "environment: RANK: three: is not a number"},
      {with(kTorch, "RANK", "-1"), "environment: RANK: -1: is not a number"},
      {with(kTorch, "RANK", "4"), "environment: RANK: 4: torchrun has the ranks 0 to 3"},
      {with(kLaunched, "STRATA_RANKS", "4x"), "environment: STRATA_RANKS: 4x: is not a number"},
      {with(kLaunched, "STRATA_LAUNCHER", "?"), "environment: STRATA_LAUNCHER: ?: is not a number"},
      {no_local, "environment: MPI_LOCALNRANKS: is not set, and MPICH says rank 1 of 2"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "4,2"),
       "SLURM_STEP_TASKS_PER_NODE: 4,2: Slurm does not put equally many of the 6 ranks on each"},
      {with(kStep, "SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"), "Slurm does not put equally many"},
      {with(kTorch, "LOCAL_WORLD_SIZE", "3"), "torchrun does not put equally many of the 4 ranks"},
      {with(kTorch, "LOCAL_WORLD_SIZE", "0"), "torchrun does not put equally many of the 4 ranks"},
      {with(kStep, "SLURM_LOCALID", "0"),
       "SLURM_LOCALID: 0: rank 5 of 6 is out of order among the 2 of a machine"},
      {joined(kTorch, kOpenMpi),
       "torchrun says rank 3 of 4 (RANK, WORLD_SIZE), and Open MPI says rank 1 of 2 "
       "(OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)"},
      {joined(kOpenMpi, kStep),
       "Open MPI says rank 1 of 2 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), and Slurm says "
       "rank 5 of 6 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"},
      {joined(kTorch, with(kCarrier, "SLURM_PROCID", "0")), "and Slurm says rank 0 of 2"},
  };
  for (const Row& row : rows) {
    try {
      place_in(row.environment);
      ADD_FAILURE() << "not refused: " << row.words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find(row.words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace strata::cli

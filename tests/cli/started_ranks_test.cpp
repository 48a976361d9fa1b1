// SPDX-License-Identifier: Apache-2.0
// Ranks that other programs started: by the variables of torchrun, Open MPI, MPICH and Slurm, and
// by the programs themselves where they are installed.
#include <algorithm>
#include <array>

#include "engine/comm/job_server.h"
#include "tests/cli/launched_runs.h"

namespace strata::cli::test {
namespace {

class StartedRanks : public LaunchedRuns {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(sandbox_ / "temporary");
    setenv("TMPDIR", (sandbox_ / "temporary").c_str(), 1);
    LaunchedRuns::SetUp();
    write_text(sandbox_ / "secret", std::string(64, 'a'));
    chmod((sandbox_ / "secret").c_str(), 0600);
  }

  // Variables of a rank, in which RANK stands for its number.
  ProcessOptions as_rank(int rank, const Arguments& variables) const {
    ProcessOptions options = here();
    options.wrap = {"env"};
    for (std::string text : variables) {
      const size_t at = text.find("=RANK");
      if (at != std::string::npos) text.replace(at + 1, 4, std::to_string(rank));
      options.wrap.push_back(text);
    }
    return options;
  }
  std::string state_of_ranks(const Arguments& variables, const Arguments& more) const {
    Process second(train("run", more), as_rank(1, variables));
    Process first(train("run", more), as_rank(0, variables));
    EXPECT_EQ(first.wait(), 0) << first.err();
    EXPECT_EQ(second.wait(), 0) << second.err();
    return state_in(first.out());
  }
  // Why MPI cannot carry what ranks exchange here; empty: it can.
  static std::string why_no_mpi() {
    const auto plugin = std::filesystem::path(STRATA_PROGRAM).parent_path() / "libstrata_mpi.so";
    if (!std::filesystem::exists(plugin)) return "built without the plugin for MPI";
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) return "mpirun is not installed";
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return "";
  }
  ProcessOptions by_mpirun(const std::string& ranks) const {
    return {.directory = sandbox_.path(),
            .wrap = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks}};
  }
  // What a command prints that a program starts, and then "exit CODE".
  std::string started_by(const std::string& command) const {
    Process process(train("run", {"--steps", "3", "--force"}),
                    {.directory = sandbox_.path(),
                     .wrap = {"sh", "-c", command + " \"$@\"; echo exit $?", "sh"}});
    process.wait();
    return process.out() + process.err();
  }
  // In a Slurm of its own, of two nodes. The exit code is kNoSlurm, and the reason is on standard
  // output, where it cannot run.
  static constexpr int kNoSlurm = 77;
  ProcessOptions by_srun(const Arguments& ranks, const Arguments& wrap = {}) const {
    ProcessOptions options = {.directory = sandbox_.path(), .wrap = {"bash", STRATA_SLURM}};
    const Arguments srun = {sandbox_ / "slurm", "srun", "--overcommit"};
    for (const Arguments& words : {srun, ranks, wrap}) {
      options.wrap.insert(options.wrap.end(), words.begin(), words.end());
    }
    return options;
  }
};

const Arguments kByTorchrun = {"RANK=RANK",          "WORLD_SIZE=2",          "LOCAL_RANK=RANK",
                               "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"};
const Arguments kByOpenMpi = {"OMPI_COMM_WORLD_RANK=RANK", "OMPI_COMM_WORLD_SIZE=2",
                              "OMPI_COMM_WORLD_LOCAL_RANK=RANK", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                              "PMIX_NAMESPACE=prterun-here-1@1"};
const Arguments kByMpich = {"PMI_RANK=RANK", "PMI_SIZE=2", "MPI_LOCALRANKID=RANK",
                            "MPI_LOCALNRANKS=2"};
const Arguments kBySlurm = {"SLURM_JOB_ID=7",         "SLURM_STEP_ID=3",
                            "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2",
                            "SLURM_PROCID=RANK",      "SLURM_LOCALID=RANK"};
const Arguments kOnTwoMachines = {"SLURM_JOB_ID=7",         "SLURM_STEP_ID=3",
                                  "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)",
                                  "SLURM_PROCID=RANK",      "SLURM_LOCALID=0"};

TEST_F(StartedRanks, TheyHaveTheStateOfThreads) {
  const std::string threads = state_of(train("threads", {"--steps", "3", "--ranks", "2"}));
  for (const Arguments& variables : {kByTorchrun, kByOpenMpi, kByMpich, kBySlurm}) {
    SCOPED_TRACE(variables.front());
    EXPECT_EQ(state_of_ranks(variables, {"--steps", "3", "--force"}), threads);
    EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / "temporary"));
  }
}

// A directory of the job that an earlier one of the same name left behind. At its address nothing
// listens, or by now another job.
TEST_F(StartedRanks, WhatAnEarlierJobLeftDoesNotMislead) {
  const std::string left =
      sandbox_ / ("temporary/strata-" + std::to_string(geteuid()) + "-Slurm-7-3");
  const comm::JobServer other({.secret = std::string(64, 'c')});
  for (const std::string& address : {std::string("127.0.0.1:1"), other.address()}) {
    std::filesystem::create_directory(left);
    std::filesystem::permissions(left, std::filesystem::perms(0700));
    write_text(left + "/server", address + "\n" + std::string(64, 'b') + "\n");
    Process second(train("run", {"--steps", "2", "--force"}), as_rank(1, kBySlurm));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // it looks there first
    Process first(train("run", {"--steps", "2", "--force"}), as_rank(0, kBySlurm));
    EXPECT_EQ(first.wait(), 0) << first.err();
    EXPECT_EQ(second.wait(), 0) << second.err();
  }

  std::filesystem::create_directory(left);
  std::filesystem::permissions(left, std::filesystem::perms(0755));
  Process first(train("other", {"--steps", "2"}), as_rank(0, kBySlurm));
  EXPECT_EQ(first.wait(), 2);
  EXPECT_NE(first.err().find("other users may enter it"), std::string::npos) << first.err();
}

TEST_F(StartedRanks, OnSeveralMachinesTheyNeedAnAddressAndASecret) {
  Process lost(train("run", {"--steps", "2"}), as_rank(0, kOnTwoMachines));
  EXPECT_EQ(lost.wait(), 2);
  EXPECT_NE(lost.err().find("ranks: Slurm started 2 on 2 machines, and where rank 0 listens is not "
                            "known (set STRATA_RENDEZVOUS=HOST:PORT"),
            std::string::npos)
      << lost.err();
  Arguments with_address = kOnTwoMachines;
  with_address.push_back("STRATA_RENDEZVOUS=127.0.0.1:" + std::to_string(20000 + getpid() % 10000));
  Process bare(train("run", {"--steps", "2"}), as_rank(0, with_address));
  EXPECT_EQ(bare.wait(), 2);
  EXPECT_NE(
      bare.err().find("--secret-file is missing: the ranks of several machines share a secret"),
      std::string::npos)
      << bare.err();
  with_address.push_back("STRATA_SECRET_FILE=secret");
  EXPECT_EQ(state_of_ranks(with_address, {"--steps", "2"}),
            state_of(train("threads", {"--steps", "2", "--ranks", "2"})));
}

TEST_F(StartedRanks, MistakesAreRefused) {
  Process other(train("run", {"--steps", "2", "--ranks", "3"}), as_rank(0, kBySlurm));
  EXPECT_EQ(other.wait(), 2);
  EXPECT_NE(other.err().find("ranks: 3: Slurm started this process as one of 2"), std::string::npos)
      << other.err();
  Arguments both = kBySlurm;
  both.insert(both.end(), {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                           "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"});
  Process torn(train("run", {"--steps", "2"}), as_rank(0, both));
  EXPECT_EQ(torn.wait(), 2);
  EXPECT_NE(torn.err().find("environment: Open MPI says rank 1 of 4"), std::string::npos)
      << torn.err();
  // Other commands are not of ranks.
  Process models({"models"}, as_rank(0, both));
  EXPECT_EQ(models.wait(), 0) << models.err();
}

TEST_F(StartedRanks, MpirunStartsThem) {
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "mpirun is not installed (Debian's package openmpi-bin)";
  }
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const std::string said = started_by("mpirun --oversubscribe --bind-to none -n 2");
  EXPECT_NE(said.find("exit 0"), std::string::npos) << said;
  EXPECT_EQ(state_in(said), state_of(train("threads", {"--steps", "3", "--ranks", "2"})));
}

TEST_F(StartedRanks, ByMpiTheyHaveTheStateAndLossesOfThreads) {
  const std::string why = why_no_mpi();
  if (!why.empty()) GTEST_SKIP() << why;
  const Arguments more = {"--steps", "3", "--shard-ranks", "2"};
  Arguments by_threads = more, by_mpi = more;
  by_threads.insert(by_threads.end(), {"--ranks", "4"});
  by_mpi.insert(by_mpi.end(), {"--collectives", "mpi"});
  const std::string threads = state_of(train("threads", by_threads));
  EXPECT_EQ(state_of(train("mpi", by_mpi), by_mpirun("4")), threads);
  EXPECT_EQ(losses_of("mpi"), losses_of("threads"));
}

TEST_F(StartedRanks, ByMpiOneThatIsKilledEndsTheOthers) {
  const std::string why = why_no_mpi();
  if (!why.empty()) GTEST_SKIP() << why;
  Process run(train("run", {"--steps", "100000", "--collectives", "mpi"}), by_mpirun("3"));
  ASSERT_TRUE(run.prints("step 3/")) << run.out() << run.err();
  const std::vector<pid_t> ranks = ranks_of("run");
  ASSERT_EQ(ranks.size(), 3U);
  kill(ranks[1], SIGKILL);
  EXPECT_TRUE(all_end("run", 10));
  EXPECT_NE(run.wait(), 0);
}

TEST_F(StartedRanks, ByMpiTheyAreThoseThatMpiStarted) {
  const std::string why = why_no_mpi();
  if (!why.empty()) GTEST_SKIP() << why;
  const Arguments by_mpi = {"--steps", "2", "--collectives", "mpi"};
  // Of two processes that others started, each is alone in MPI.
  Process second(train("run", by_mpi), as_rank(1, kByTorchrun));
  Process first(train("run", by_mpi), as_rank(0, kByTorchrun));
  const std::array codes = {first.wait(), second.wait()};
  EXPECT_EQ(*std::ranges::min_element(codes), 2);  // the other may have heard of it first
  const std::string said = first.err() + second.err();
  EXPECT_NE(said.find("this process is rank 0 of 1 in MPI, and rank "), std::string::npos) << said;

  setenv("STRATA_PLUGIN_PATH", sandbox_.path().c_str(), 1);
  Process bare(train("run", by_mpi), by_mpirun("2"));
  unsetenv("STRATA_PLUGIN_PATH");
  EXPECT_NE(bare.wait(), 0);  // that of the rank which ends first; one may have heard of the other
  EXPECT_NE(bare.err().find("collectives: mpi: libstrata_mpi.so is not in " + sandbox_.path()),
            std::string::npos)
      << bare.err();
}

TEST_F(StartedRanks, ByMpiTheyAreNotThreadsNorOfLaunch) {
  const Arguments by_mpi = {"--steps", "2", "--collectives", "mpi"};
  const std::string command = "mpirun -n 2 strata train --collectives mpi";
  Arguments threads = by_mpi;
  threads.insert(threads.end(), {"--ranks", "2"});
  for (const Arguments& mistake : {train("run", threads), launch(2, train("run", by_mpi))}) {
    Process refused(mistake, here());
    EXPECT_EQ(refused.wait(), 2);
    EXPECT_NE(refused.err().find(command), std::string::npos) << refused.err();
  }
}

TEST_F(StartedRanks, SrunStartsThem) {
  Process run(train("run", {"--steps", "3"}), by_srun({"-n", "2"}));
  const int code = run.wait();
  if (code == kNoSlurm) GTEST_SKIP() << run.out();
  EXPECT_EQ(code, 0) << run.err();
  EXPECT_EQ(state_in(run.out()), state_of(train("threads", {"--steps", "3", "--ranks", "2"})));
}

TEST_F(StartedRanks, SrunStartsThemOnSeveralMachines) {
  const Arguments variables = {"env", "STRATA_RENDEZVOUS=127.0.0.1:29500",
                               "STRATA_SECRET_FILE=secret"};
  Process run(train("run", {"--steps", "3"}), by_srun({"-N", "2", "-n", "2"}, variables));
  const int code = run.wait();
  if (code == kNoSlurm) GTEST_SKIP() << run.out();
  EXPECT_EQ(code, 0) << run.err();
  EXPECT_NE(run.err().find("machines: 2, and plans are made for the least"), std::string::npos)
      << run.err();
  EXPECT_EQ(state_in(run.out()), state_of(train("threads", {"--steps", "3", "--ranks", "2"})));
}

TEST_F(StartedRanks, BySrunOneThatIsKilledEndsTheOther) {
  Process run(train("run", {"--steps", "1000000"}), by_srun({"-n", "2"}));
  if (!run.prints("step 1/")) {
    if (run.is_over() && run.wait() == kNoSlurm) GTEST_SKIP() << run.out();
    FAIL() << run.out() << run.err();
  }
  const std::vector<pid_t> ranks = ranks_of("run");
  ASSERT_EQ(ranks.size(), 2U);
  kill(ranks[1], SIGKILL);
  EXPECT_TRUE(all_end("run", 10));
  EXPECT_NE(run.wait(), 0);
}

TEST_F(StartedRanks, TorchrunStartsThem) {
  const char* torchrun = std::getenv("STRATA_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "STRATA_TORCHRUN names no torchrun";
  const std::string said =
      started_by(std::string(torchrun) + " --no-python --nproc-per-node 2 --master-port 29555");
  EXPECT_NE(said.find("exit 0"), std::string::npos) << said;
  EXPECT_EQ(state_in(said), state_of(train("threads", {"--steps", "3", "--ranks", "2"})));
}

}  // namespace
}  // namespace strata::cli::test

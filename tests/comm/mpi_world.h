// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/comm/group_mpi.h"
#include "engine/comm/job_server.h"
#include "tests/comm/job_support.h"
#include "tests/support/temporary_directory.h"

// Tests of ranks that mpirun starts. A test outside starts this binary by mpirun with the tests
// that it names; each of these processes then runs the same tests, as one rank.
namespace strata::test {

inline const char* const kMpiTestFolder = "STRATA_MPI_TEST";
inline const std::string kPlugins = STRATA_BINARY_DIR "/bindings/cli";

// Why no rank can be started by MPI here; empty: they can.
inline std::string why_no_mpi() {
  if (!std::filesystem::exists(kPlugins + "/" + comm::kMpiPlugin.file)) {
    return "built without the plugin for MPI (Debian's package libopenmpi-dev)";
  }
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) {
    return "mpirun is not installed (Debian's package openmpi-bin)";
  }
  return "";
}

// Runs some tests of this binary as `count` ranks, which share `directory`. Returns what they
// print; empty when all of them pass. Leaks do not count: MPI unloads parts of itself that leak.
inline std::string run_by_mpirun(int count, const std::string& tests, const std::string& directory,
                                 const std::string& more = "") {
  const std::string log = directory + "/log";
  const std::string command =
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX OMPI_ALLOW_RUN_AS_ROOT=1 "
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 " +
      std::string(kMpiTestFolder) + "=" + directory +
      " timeout 120 mpirun --oversubscribe --bind-to none " + more + " -n " +
      std::to_string(count) + " " + std::filesystem::canonical("/proc/self/exe").string() +
      " --gtest_brief=1 --gtest_filter='" + tests + "' > " + log + " 2>&1";
  const int status = std::system(command.c_str());
  const std::string said = read_text(log);
  if (status == 0 && said.find(" 0 tests ") == said.npos) return "";
  return "ended with " + std::to_string(status) + ":\n" + said;
}

// This process as a rank of MPI.
class MpiWorld {
 public:
  static bool is_here() { return std::getenv(kMpiTestFolder) != nullptr; }
  static MpiWorld& get() {
    static MpiWorld world;
    return world;
  }

  comm::MpiProcess& mpi() { return *mpi_; }
  int rank() const { return mpi_->rank(); }

  // A file that all ranks share, and what one of them has written there.
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void tell(const std::string& name, const std::string& text) const {
    write_text(path(name + ".part"), text);
    std::filesystem::rename(path(name + ".part"), path(name));
  }
  std::string hear(const std::string& name) const {
    for (const double end_s = now_s() + 60; !std::filesystem::exists(path(name));) {
      if (now_s() > end_s) throw Error(ErrorCode::kDeadline, "no rank has told: " + name);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return read_text(path(name));
  }

  // A rank of a job. Its groups end when all ranks are done, because others may still call them.
  struct Member {
    explicit Member(comm::JobStoreOptions options) : store(std::move(options)) {}
    comm::JobStore store;
    std::vector<std::unique_ptr<comm::Group>> groups;
  };

  // A job of the first `count` ranks. All ranks call it; `body` is run by those of the job. Returns
  // what each rank's body returned, on all ranks.
  std::vector<std::string> run_job(int count, const std::function<std::string(Member&)>& body) {
    const std::string job = "job-" + std::to_string(++jobs_) + "-";
    std::unique_ptr<comm::JobServer> server;
    if (rank() == 0) {
      server = std::make_unique<comm::JobServer>(
          comm::JobServerOptions{.secret = comm::kJobSecret, .size = count});
      tell(job + "address", server->address());
    }
    std::optional<Member> member;
    if (rank() < count) {
      member.emplace(comm::JobStoreOptions{.address = hear(job + "address"),
                                           .secret = comm::kJobSecret,
                                           .rank = rank(),
                                           .size = count});
      // A message that an earlier job has not received is never taken for one of this job.
      if (rank() == 0) member->store.add("mpi/groups", 100 * jobs_);
      tell(job + "begun" + std::to_string(rank()), "");
      hear(job + "begun0");
      tell(job + std::to_string(rank()), body(*member));
    }
    std::vector<std::string> results;
    for (int r = 0; r < count; ++r) results.push_back(hear(job + std::to_string(r)));
    return results;
  }

  void finish() { mpi_->finish(); }

 private:
  MpiWorld() : folder_(std::getenv(kMpiTestFolder)) {
    std::string why;
    const comm::MpiPlugin* plugin = comm::load_mpi_plugin(kPlugins, why);
    if (plugin == nullptr) throw Error(ErrorCode::kConfig, why);
    mpi_ = plugin->start();
  }

  const std::string folder_;
  std::unique_ptr<comm::MpiProcess> mpi_;
  int jobs_ = 0;
};

// A count that ranks share, whether they are threads or processes. All make theirs in one order.
class SharedCount {
 public:
  SharedCount() {
    static int made = 0;
    const std::string name = "count-" + std::to_string(++made);
    const int file = MpiWorld::is_here()
                         ? ::open(MpiWorld::get().path(name).c_str(), O_CREAT | O_RDWR, 0600)
                         : ::memfd_create(name.c_str(), 0);
    const int sized = ::ftruncate(file, sizeof(*count_));
    STRATA_CHECK(sized == 0);
    void* memory = ::mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    STRATA_CHECK(memory != MAP_FAILED);
    ::close(file);
    count_ = static_cast<std::atomic<int>*>(memory);
  }
  ~SharedCount() { ::munmap(count_, sizeof(*count_)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;

  void add() { count_->fetch_add(1); }
  int value() const { return count_->load(); }

 private:
  std::atomic<int>* count_ = nullptr;
};

}  // namespace strata::test

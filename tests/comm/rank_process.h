// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "tests/support/temporary_directory.h"

namespace strata::test {

// A rank of a job as a process of its own. It has no threads of the test's process, so the test has
// none when it makes one. It is killed when the object ends before it.
class RankProcess {
 public:
  // `body` returns what is wrong, "" for nothing. An Error counts as its text.
  explicit RankProcess(const std::function<std::string()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    std::string wrong;
    try {
      wrong = body();
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) std::fprintf(stderr, "a rank's process: %s\n", wrong.c_str());
    ::_exit(wrong.empty() ? 0 : 1);
  }
  ~RankProcess() {
    signal(SIGKILL);
    wait();
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  // True when it ended by itself and nothing was wrong.
  bool wait() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(pid_, &status, 0) != pid_) status = 1;
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_;
};

// What processes of one job share: rank 0 makes the server, the others find its address in a file.
class JobOfProcesses {
 public:
  explicit JobOfProcesses(int size, double silence_s = 25) : size_(size), silence_s_(silence_s) {}

  struct Member {
    std::unique_ptr<comm::JobServer> server;  // of rank 0
    std::unique_ptr<comm::JobStore> store;
  };
  Member join(int rank) const {
    const std::string secret = "a secret of processes";
    Member member;
    if (rank == 0) {
      member.server = std::make_unique<comm::JobServer>(
          comm::JobServerOptions{.secret = secret, .size = size_, .silence_s = silence_s_});
      write_text(directory_ / "address.part", member.server->address());
      std::filesystem::rename(directory_ / "address.part", directory_ / "address");
    }
    await("address");
    member.store = std::make_unique<comm::JobStore>(
        comm::JobStoreOptions{.address = read_text(directory_ / "address"),
                              .secret = secret,
                              .rank = rank,
                              .size = size_});
    return member;
  }

  // Marks that processes leave for each other and for the test.
  void mark(const std::string& name) const { write_text(directory_ / name, name); }
  void await(const std::string& name) const {
    for (const double end_s = now_s() + 60; !std::filesystem::exists(directory_ / name);) {
      if (now_s() > end_s) throw Error(ErrorCode::kDeadline, "no process has marked: " + name);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  const int size_;
  const double silence_s_;
  const TemporaryDirectory directory_;
};

}  // namespace strata::test

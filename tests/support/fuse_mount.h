// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace strata::test {

// The disk of tests/io/fuse_disk.cpp, mounted on a directory while the object lives.
class FuseMount {
 public:
  enum class Cache : uint8_t { kNone, kKernel };

  explicit FuseMount(const std::string& directory, Cache cache = Cache::kNone)
      : directory_(directory) {
    const std::string program = std::string(STRATA_BINARY_DIR) + "/tests/io/fuse_disk";
    if (access(program.c_str(), X_OK) != 0) {
      refusal_ = "libfuse 3 was not there at build time";
    } else if (access("/dev/fuse", R_OK | W_OK) != 0) {
      refusal_ = "/dev/fuse may not be opened";
    } else {
      start(program, cache);
    }
  }
  ~FuseMount() {
    if (child_ < 0 && !was_mounted_) return;
    umount2(directory_.c_str(), MNT_DETACH);
    kill();
  }
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;

  // Why there is no disk, for skipping a test that needs one; empty when there is one.
  const std::string& refusal() const { return refusal_; }

  // Sends a command (see fuse_disk.cpp). Returns false when the disk does not understand it.
  [[nodiscard]] bool fault(const std::string& line) const {
    const int fd = open((directory_ + "/faults").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    const bool taken = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    close(fd);
    return taken;
  }

  // Counted since the disk was mounted.
  uint64_t written_bytes() const {
    struct statvfs info = {};
    return statvfs(directory_.c_str(), &info) == 0 ? info.f_files : 0;
  }

  // Kills the disk's process; calls that wait for it fail.
  void kill() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  void start(const std::string& program, Cache cache) {
    child_ = fork();
    if (child_ == 0) {
      execl(program.c_str(), program.c_str(), directory_.c_str(),
            cache == Cache::kKernel ? "cached" : nullptr, nullptr);
      _exit(127);
    }
    constexpr int kFuseMagic = 0x65735546;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      struct statfs info = {};
      was_mounted_ = statfs(directory_.c_str(), &info) == 0 && info.f_type == kFuseMagic;
      if (was_mounted_) return;
      if (waitpid(child_, nullptr, WNOHANG) == child_) {
        child_ = -1;
        refusal_ = "mounting a FUSE file system is not permitted";
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the disk did not appear";
    refusal_ = "no disk";
  }

  const std::string directory_;
  std::string refusal_;
  bool was_mounted_ = false;
  pid_t child_ = -1;
};

}  // namespace strata::test

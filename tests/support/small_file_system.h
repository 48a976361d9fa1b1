// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mount.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace strata::test {

// A small file system, mounted on a directory while the object lives.
class SmallFileSystem {
 public:
  // In memory; `size` as tmpfs reads it: "4m".
  static SmallFileSystem in_memory(const std::string& directory, const std::string& size) {
    const bool mounted =
        mount("tmpfs", directory.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    return {directory, mounted ? "" : std::string("mounting is not permitted: ") + strerror(errno)};
  }
  // ext4 in a file of that size, as on a drive of its own.
  static SmallFileSystem on_drive(const std::string& directory, const std::string& image,
                                  const std::string& size) {
    const std::string quiet = " > /dev/null 2>&1";
    const bool made = std::system(("truncate -s " + size + " '" + image + "' && mkfs.ext4 -q -F " +
                                   "-m 0 -O ^has_journal '" + image + "'" + quiet)
                                      .c_str()) == 0;
    if (!made) return {directory, "there is no mkfs.ext4"};
    const bool mounted =
        std::system(("mount -o loop '" + image + "' '" + directory + "'" + quiet).c_str()) == 0;
    return {directory, mounted ? "" : "mounting a loop device is not permitted"};
  }
  ~SmallFileSystem() {
    if (refusal_.empty()) umount2(directory_.c_str(), MNT_DETACH);
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;

  // Why there is no file system, for skipping a test that needs one; empty when there is one.
  const std::string& refusal() const { return refusal_; }

 private:
  SmallFileSystem(const std::string& directory, const std::string& refusal)
      : directory_(directory), refusal_(refusal) {}

  const std::string directory_;
  const std::string refusal_;
};

}  // namespace strata::test

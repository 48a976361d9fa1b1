// SPDX-License-Identifier: Apache-2.0
#include "engine/train/meeting_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_file.h"

namespace strata::train {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(5);

std::string invitation_path(const std::string& directory) {
  return directory + "/server";
}

// False when it is not there.
bool is_private(const std::string& directory) {
  struct stat info = {};
  if (lstat(directory.c_str(), &info) != 0) return false;
  const mode_t others = info.st_mode & (S_IRWXG | S_IRWXO);
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && others == 0) return true;
  throw Error(ErrorCode::kConfig,
              fmt::format("ranks: {}: ranks do not meet there, because other users may enter it or "
                          "it is not a directory (remove it, or set TMPDIR to another directory)",
                          directory));
}

}  // namespace

PostedInvitation::PostedInvitation(std::string directory, const Invitation& invitation)
    : directory_(std::move(directory)) {
  if (!is_private(directory_) && mkdir(directory_.c_str(), S_IRWXU) != 0) {
    throw system_error(ErrorCode::kConfig, "ranks: cannot create: " + directory_, errno,
                       "set TMPDIR to a directory that this user may write");
  }
  const std::string path = invitation_path(directory_);
  const std::string part = path + ".part";
  checkpoint::write_small_file(part, invitation.address + '\n' + invitation.secret + '\n');
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) throw system_error(ErrorCode::kIo, "ranks: cannot write: " + path, error.value());
}

PostedInvitation::~PostedInvitation() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Invitation await_invitation(const std::string& directory, double deadline_s) {
  for (const double end_s = now_s() + deadline_s; now_s() < end_s;) {
    if (is_private(directory)) {
      std::ifstream file(invitation_path(directory));
      Invitation invitation;
      if (file >> invitation.address >> invitation.secret) return invitation;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  throw Error(ErrorCode::kDeadline,
              fmt::format("ranks: {}: rank 0 did not write it within {} s (look for rank 0's own "
                          "error)",
                          invitation_path(directory), deadline_s));
}

}  // namespace strata::train

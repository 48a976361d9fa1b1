// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_link.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_list.h"
#include "engine/model_files/file.h"

namespace strata::checkpoint {

namespace fs = std::filesystem;

std::optional<int64_t> linked_step(const std::string& link) {
  const BlockingCall call("read", link);
  std::error_code ignored;
  if (!fs::is_symlink(link, ignored)) return std::nullopt;
  if (!fs::exists(link + "/manifest.json", ignored)) return std::nullopt;
  try {
    return read_manifest(link).step;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw;
  }
  // A damaged checkpoint keeps its link: its name has the step.
  const std::string name = fs::read_symlink(link, ignored).filename().string();
  int64_t step = 0;
  const char* digits = name.data() + std::min(name.size(), kPrefix.size());
  const auto [rest, error] = std::from_chars(digits, name.data() + name.size(), step);
  return error == std::errc() ? std::optional(step) : std::nullopt;
}

void link_checkpoint(const std::string& link, const std::string& directory, int64_t step) {
  const BlockingCall call("link", link);
  const fs::path target =
      fs::path(checkpoint_path(directory, step)).lexically_relative(fs::path(link).parent_path());
  const std::string temporary = link + ".tmp";
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    throw system_error(ErrorCode::kIo, "cannot remove: " + temporary, errno);
  }
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    throw system_error(ErrorCode::kIo, "cannot make a symbolic link: " + temporary, errno,
                       "choose an --out where links can be, or leave out --keep-best");
  }
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    throw system_error(ErrorCode::kIo, "cannot rename: " + temporary + " to " + link, errno);
  }
  model::sync_directory(fs::path(link).parent_path().string());
}

void remove_dangling(const std::string& link) {
  const BlockingCall call("remove", link);
  std::error_code ignored;
  if (!fs::is_symlink(link, ignored) || linked_step(link)) return;
  if (::unlink(link.c_str()) != 0 && errno != ENOENT) {
    throw system_error(ErrorCode::kIo, "cannot remove: " + link, errno);
  }
}

}  // namespace strata::checkpoint

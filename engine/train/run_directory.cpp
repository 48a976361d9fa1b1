// SPDX-License-Identifier: Apache-2.0
#include "engine/train/run_directory.h"

#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_file.h"
#include "engine/model_files/file.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr const char* kModelName = "model";

// Names that a run's directory may have before run.json exists.
constexpr std::string_view kFirstNames[] = {kLockFile, "run.json.tmp", kCheckpointsFolder};

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void create_directory(const std::string& path) {
  const BlockingCall call("create", path);
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) {
    throw system_error(ErrorCode::kConfig, "cannot create run directory: " + path, error.value(),
                       "give a path that this user may write");
  }
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error(ErrorCode::kConfig, "cannot create run directory: " + path, errno,
                       "give a path that this user may write");
  }
}

// Throws unless the directory is empty or has a run.
void check_is_run(const std::string& path) {
  const BlockingCall call("look at", path);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return;
  if (error) {
    throw system_error(ErrorCode::kConfig, "cannot use run directory: " + path, error.value(),
                       "give a path that this user may read and write");
  }
  if (status.type() != fs::file_type::directory) {
    throw Error(ErrorCode::kConfig, "cannot use run directory: " + path +
                                        ": it is not a directory (give another path)");
  }
  if (fs::exists(fs::path(path) / kRunFile, error)) return;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::find(std::begin(kFirstNames), std::end(kFirstNames), name) != std::end(kFirstNames)) {
      continue;
    }
    throw Error(ErrorCode::kConfig,
                "cannot use run directory: " + path + ": it has " + name +
                    " and no run.json, so it does not belong to a run (give another path, "
                    "or an empty directory)");
  }
  if (error) {
    throw system_error(ErrorCode::kConfig, "cannot use run directory: " + path, error.value());
  }
}

}  // namespace

void RunDirectory::check(const std::string& path) {
  check_is_run(without_trailing_slash(path));
  model::require_may_create(without_trailing_slash(path), "run directory");
}

bool RunDirectory::is_folder_of_run(const std::string& directory) {
  const BlockingCall call("look at", directory);
  std::error_code ignored;
  const fs::path path = fs::weakly_canonical(without_trailing_slash(directory), ignored);
  const std::string name = path.filename().string();
  return (name == kCheckpointsFolder || name == kModelName) &&
         model::is_there(path.parent_path() / kRunFile);
}

bool RunDirectory::is_run(const std::string& directory) {
  const BlockingCall call("look at", directory);
  if (::access((directory + "/" + kRunFile).c_str(), F_OK) == 0) return true;
  if (errno == EACCES)
    throw system_error(ErrorCode::kConfig, "cannot look into: " + directory, errno);
  return false;
}

RunDirectory::RunDirectory(const std::string& path, const std::string& owner)
    : path_(without_trailing_slash(path)) {
  check_is_run(path_);
  create_directory(path_);
  lock_.emplace(path_, kLockFile, owner);
  check_is_run(path_);  // with the lock held, no other run changes it
  has_run_ = is_run(path_);
}

std::string RunDirectory::checkpoints() const {
  return path_ + "/" + kCheckpointsFolder;
}

std::string RunDirectory::model() const {
  return path_ + "/" + kModelName;
}

std::optional<Json> RunDirectory::read_run() const {
  if (!has_run_) return std::nullopt;
  return Json::read_file(path_ + "/" + kRunFile);
}

void RunDirectory::write_run(const Json& run) {
  write(kRunFile, run.dump(2) + "\n");
  has_run_ = true;
}

void RunDirectory::remove(const char* name) const {
  const BlockingCall call("remove", path_);
  if (::unlink((path_ + "/" + name).c_str()) == 0 || errno == ENOENT) return;
  throw system_error(ErrorCode::kIo, fmt::format("cannot remove: {}/{}", path_, name), errno);
}

void RunDirectory::write(const char* name, std::string_view text) const {
  const std::string to = path_ + "/" + name;
  const std::string temporary = to + ".tmp";
  checkpoint::write_small_file(temporary, text);
  {
    const BlockingCall call("rename", temporary);
    if (::rename(temporary.c_str(), to.c_str()) != 0) {
      throw system_error(ErrorCode::kIo, "cannot rename: " + temporary + " to " + to, errno);
    }
  }
  model::sync_directory(path_);
}

}  // namespace strata::train

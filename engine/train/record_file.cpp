// SPDX-License-Identifier: Apache-2.0
#include "engine/train/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace strata::train {

RecordFile::RecordFile(std::string what, std::string path, int64_t kept_bytes)
    : what_(std::move(what)), path_(std::move(path)) {
  open(kept_bytes);
}

void RecordFile::open(std::optional<int64_t> kept_bytes) {
  const BlockingCall call("open", path_);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ >= 0 && (!kept_bytes || ftruncate(file_, *kept_bytes) == 0)) return;
  const int cause = errno;
  if (file_ >= 0) close(std::exchange(file_, -1));
  throw system_error(ErrorCode::kIo, fmt::format("open {}: {}", what_, path_), cause);
}

RecordFile::~RecordFile() {
  if (file_ >= 0) close(file_);
}

void RecordFile::append(std::string_view record) {
  const BlockingCall call("write", path_);
  struct stat info = {};
  if (fstat(file_, &info) == 0 && info.st_nlink == 0) {
    log(LogLevel::kWarning,
        fmt::format("{}: {}: it was removed or replaced, so later records go to the file that has "
                    "its name now (leave it alone during the run)",
                    what_, path_));
    close(std::exchange(file_, -1));
    open({});
  }
  while (!record.empty()) {
    const ssize_t put = write(file_, record.data(), record.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      throw system_error(ErrorCode::kIo, fmt::format("write {}: {}", what_, path_), errno,
                         "free some space and resume from the last checkpoint");
    }
    record.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace strata::train

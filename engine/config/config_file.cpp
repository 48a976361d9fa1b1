// SPDX-License-Identifier: Apache-2.0
#include "engine/config/config_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::config {
namespace {

constexpr int kNobodyMs = 2000;
constexpr double kSilentS = 30;

class File {
 public:
  // O_NONBLOCK, because open(2) of a pipe would wait for a writer.
  explicit File(const std::string& path)
      : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (file_ < 0) {
      throw system_error(ErrorCode::kConfig, "cannot open " + path, errno,
                         "give a file that can be read");
    }
  }
  ~File() { close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_pipe() const {
    struct stat about = {};
    return fstat(file_, &about) == 0 && S_ISFIFO(about.st_mode);
  }

  // Appends the bytes that are available. Returns false at the end.
  bool read_some(std::string& text) {
    const double begin_s = now_s();
    while (true) {
      struct pollfd data = {file_, POLLIN, 0};
      const int answers = poll(&data, 1, kNobodyMs);
      if (answers < 0) continue;  // a signal
      std::array<char, 16384> part;
      const ssize_t got = read(file_, part.data(), part.size());
      if (got > 0) {
        text.append(part.data(), static_cast<size_t>(got));
        return true;
      }
      if (got == 0 && answers > 0) return false;
      if (got == 0) refuse(fmt::format("no program wrote to this pipe for {} s", kNobodyMs / 1000));
      if (errno != EAGAIN && errno != EINTR) {
        throw system_error(ErrorCode::kConfig, "cannot read " + path_, errno);
      }
      if (now_s() - begin_s > kSilentS) refuse(fmt::format("nothing came for {:.0f} s", kSilentS));
    }
  }

  [[noreturn]] void refuse(const std::string& cause) const {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("cannot read {}: {} (is the program that fills it running?)", path_, cause));
  }

 private:
  const std::string path_;
  const int file_;
};

}  // namespace

std::string read_config_file(const std::string& path, size_t bytes_max) {
  File file(path);
  std::string text;
  while (text.size() <= bytes_max && file.read_some(text)) {
  }
  if (text.size() > bytes_max) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read {}: it has more than {} (is it the right file?)", path,
                            format_bytes(static_cast<int64_t>(bytes_max))));
  }
  if (text.empty() && file.is_pipe()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read {}: nothing came out of the pipe (did the program that "
                            "fills it fail?)",
                            path));
  }
  return text;
}

}  // namespace strata::config

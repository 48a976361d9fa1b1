// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/job_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/shell_word.h"

namespace strata::cli {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr const char* kHowToMake = "make one: (umask 077; openssl rand -hex 32 > FILE)";

[[noreturn]] void refuse_secret(const std::string& path, const std::string& cause,
                                const std::string& advice) {
  throw Error(ErrorCode::kConfig,
              fmt::format("secret of the job: {}: {} ({})", path, cause, advice));
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

}  // namespace

std::string read_secret(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    throw system_error(ErrorCode::kConfig, "secret of the job: " + path, errno, kHowToMake);
  }
  struct stat info = {};
  std::array<char, kSecretBytesMax + 1> bytes;
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t count = is_file ? read(fd, bytes.data(), bytes.size()) : 0;
  close(fd);
  if (!is_file) refuse_secret(path, "it is not a file", kHowToMake);
  if (info.st_uid != geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    refuse_secret(path, "other users own it, or may read or write it",
                  fmt::format("chmod 600 {}, or another secret", shell_word(path)));
  }
  const std::string secret = trimmed({bytes.data(), static_cast<size_t>(count < 0 ? 0 : count)});
  if (secret.size() < kSecretBytesMin || static_cast<size_t>(count) > kSecretBytesMax) {
    refuse_secret(path,
                  fmt::format("it has {} characters instead of {} to {}", secret.size(),
                              kSecretBytesMin, kSecretBytesMax),
                  kHowToMake);
  }
  return secret;
}

}  // namespace strata::cli

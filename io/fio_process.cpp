// SPDX-License-Identifier: Apache-2.0
#include "io/fio_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "engine/base/clock.h"

namespace strata::io {
namespace {

constexpr int kGlanceMs = 100;
constexpr double kEndGraceS = 10;   // how long fio may take to end after it is told to
constexpr double kReapGraceS = 2;   // how long the kernel may take to end it after it is killed
constexpr size_t kMostWords = 400;  // the longest message, in bytes

// Fields of terse version 3, counted from 0.
constexpr size_t kErrorField = 4;
constexpr size_t kReadKibField = 5;
constexpr size_t kReadRateField = 6;
constexpr size_t kReadMsField = 8;
constexpr size_t kWriteKibField = 46;
constexpr size_t kWriteRateField = 47;
constexpr size_t kWriteMsField = 49;
constexpr size_t kUserField = 87;
constexpr size_t kSystemField = 88;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool is_terse(const std::string& line) {
  return line.starts_with("3;");
}

// Turns the child into fio, after fork(). It inherits no other files, ends when we end, and has a
// process group of its own, so that its jobs can be killed with it.
[[noreturn]] void become(char* const* argv, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execvp(argv[0], argv);
  _exit(127);
}

// Collects what the child prints until it closes its end of the pipe. Returns false at the
// deadline.
bool take_output(pid_t child, int from, double limit_s, const std::atomic<bool>* stop,
                 std::string& text) {
  double end_s = now_s() + limit_s;
  std::array<char, 4096> part;
  for (bool told = false; now_s() < end_s;) {
    if (!told && stop != nullptr && *stop) {
      told = kill(child, SIGTERM) == 0;
      end_s = std::min(end_s, now_s() + kEndGraceS);
    }
    pollfd ready = {.fd = from, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kGlanceMs) <= 0) continue;
    const ssize_t count = read(from, part.data(), part.size());
    if (count == 0) return true;
    if (count > 0) text.append(part.data(), static_cast<size_t>(count));
  }
  return false;
}

// Kills the child's group. A process that waits in the kernel stays our zombie until the drive
// answers.
void kill_group(pid_t child, int* status) {
  kill(-child, SIGKILL);
  kill(child, SIGKILL);  // in case it has no group yet
  const double end_s = now_s() + kReapGraceS;
  while (waitpid(child, status, WNOHANG) == 0 && now_s() < end_s) poll(nullptr, 0, 10);
}

}  // namespace

FioOutput run_fio(const std::vector<std::string>& arguments, double limit_s,
                  const std::atomic<bool>* stop) {
  std::vector<std::string> words = {"env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "fio"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  FioOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return output;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(argv.data(), ends[1], parent);
  close(ends[1]);
  output.timed_out = child > 0 && !take_output(child, ends[0], limit_s, stop, output.text);
  close(ends[0]);
  if (output.timed_out) kill_group(child, &output.status);
  while (!output.timed_out && child > 0 && waitpid(child, &output.status, 0) < 0 &&
         errno == EINTR) {
  }
  return output;
}

std::optional<FioResult> parse_fio_terse(std::string_view output) {
  const std::vector<std::string> lines = split(output, '\n');
  const auto line = std::find_if(lines.rbegin(), lines.rend(), is_terse);
  if (line == lines.rend()) return std::nullopt;
  const std::vector<std::string> fields = split(*line, ';');
  if (fields.size() <= kSystemField || fields[kErrorField] != "0") return std::nullopt;
  const auto number = [&fields](size_t field) {
    return std::strtod(fields[field].c_str(), nullptr);
  };
  FioResult result;
  result.read_bytes_per_s = number(kReadRateField) * 1024;
  result.write_bytes_per_s = number(kWriteRateField) * 1024;
  result.bytes_read = static_cast<uint64_t>(number(kReadKibField)) * 1024;
  result.bytes_written = static_cast<uint64_t>(number(kWriteKibField)) * 1024;
  const double gigabytes = static_cast<double>(result.bytes_read + result.bytes_written) / 1e9;
  const double seconds = std::max(number(kReadMsField), number(kWriteMsField)) / 1e3;
  if (gigabytes <= 0) return std::nullopt;
  result.cpu_s_per_gb = (number(kUserField) + number(kSystemField)) / 100 * seconds / gigabytes;
  return result;
}

std::string fio_words(std::string_view output) {
  std::string words;
  int error = 0;
  for (const std::string& line : split(output, '\n')) {
    if (is_terse(line)) {
      const std::vector<std::string> fields = split(line, ';');
      if (fields.size() > kErrorField) error = std::atoi(fields[kErrorField].c_str());
    } else if (!line.empty() && words.find(line) == std::string::npos) {
      words += (words.empty() ? "" : "; ") + line;
    }
  }
  if (words.empty() && error != 0) words = std::strerror(error);
  if (words.empty()) words = "it ended without a result and said nothing";
  if (words.size() > kMostWords) words = words.substr(0, kMostWords) + " ...";
  return words;
}

}  // namespace strata::io

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/obey_permissions.h"
#include "tests/support/temporary_directory.h"

// The built program as a process of its own, in a sandbox on the drive of the build tree.
namespace strata::cli::test {

using Arguments = std::vector<std::string>;

struct ProcessOptions {
  std::string directory = {};          // working directory
  uint64_t file_size_limit = 0;        // RLIMIT_FSIZE; 0: as it is
  bool obeys_permissions = false;      // of files, also where the test is root
  bool drops_root = false;             // as a user who owns nothing here, where the test is root
  uint64_t process_limit = 0;          // RLIMIT_NPROC, which root does not have; 0: as it is
  std::vector<std::string> wrap = {};  // a command that gets the program's command line appended
};

// One run of `strata ARGUMENTS`. Killed when it goes while the process lives.
class Process {
 public:
  Process(const Arguments& arguments, const ProcessOptions& options)
      : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
    Arguments words = options.wrap;
    words.emplace_back(STRATA_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) become(argv, options);
  }
  ~Process() {
    if (!status_) {
      kill(SIGKILL);
      wait();
    }
    close(out_);
    close(err_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void kill(int signal) const { ::kill(child_, signal); }

  // The exit code, or 128 + the signal that ended it.
  int wait() {
    if (!status_) {
      int status = 0;
      rusage usage = {};
      wait4(child_, &status, 0, &usage);
      peak_bytes_ = int64_t{usage.ru_maxrss} << 10;
      cpu_s_ = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return *status_;
  }
  // Processor time that it took; known when it has ended.
  double cpu_s() const { return cpu_s_; }
  // The most memory that the kernel counted for it; known when it has ended.
  int64_t peak_bytes() const { return peak_bytes_; }
  bool is_over() {
    if (status_) return true;
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child_;
  }
  // Whether it has ended, up to threads of it that the kernel keeps; wait() waits for those too.
  bool has_left() {
    if (is_over()) return true;
    return strata::test::read_of_process(child_, "stat").find(") Z ") != std::string::npos;
  }

  // What it has printed so far.
  std::string out() const { return text_of(out_); }
  std::string err() const { return text_of(err_); }

  // What it has open under that number.
  std::string file_of(int descriptor) const {
    std::error_code none;
    return std::filesystem::read_symlink(
        "/proc/" + std::to_string(child_) + "/fd/" + std::to_string(descriptor), none);
  }

  // Waits for `text` on standard output or error; false when it ended, or too long passed, without
  // it.
  bool prints(const std::string& text, double limit_s = 60) { return shows(out_, text, limit_s); }
  bool prints_error(const std::string& text, double limit_s = 60) {
    return shows(err_, text, limit_s);
  }

 private:
  bool shows(int file, const std::string& text, double limit_s) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (std::chrono::steady_clock::now() < end) {
      const bool over = is_over();
      if (text_of(file).find(text) != std::string::npos) return true;
      if (over) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  [[noreturn]] void become(const std::vector<char*>& argv, const ProcessOptions& options) const {
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    // As in a terminal, also where the tests run under nohup or in the background.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    bool ready = options.directory.empty() || chdir(options.directory.c_str()) == 0;
    if (options.file_size_limit > 0) {
      const rlimit limit = {options.file_size_limit, options.file_size_limit};
      ready = ready && setrlimit(RLIMIT_FSIZE, &limit) == 0;
    }
    if (options.process_limit > 0) {
      const rlimit limit = {options.process_limit, options.process_limit};
      ready = ready && setrlimit(RLIMIT_NPROC, &limit) == 0;
    }
    constexpr id_t kNobody = 65534;
    // The program may lie where another user cannot go.
    const int program = open(STRATA_PROGRAM, O_PATH);
    if (options.drops_root && geteuid() == 0) {
      ready = ready && setgid(kNobody) == 0 && setuid(kNobody) == 0;
    }
    if (options.obeys_permissions) ready = ready && strata::test::obey_permissions();
    if (ready && options.wrap.empty()) fexecve(program, argv.data(), environ);
    if (ready) execvp(argv[0], argv.data());
    _exit(127);
  }

  static std::string text_of(int file) {
    struct stat info = {};  // and no lseek: the child writes at the same position
    fstat(file, &info);
    std::string text(static_cast<size_t>(info.st_size), '\0');
    const ssize_t got = pread(file, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

  static double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  }

  int out_;
  int err_;
  double cpu_s_ = 0;
  int64_t peak_bytes_ = 0;
  pid_t child_ = -1;
  std::optional<int> status_;
};

using strata::test::read_of_process;
using strata::test::read_text;
using strata::test::write_text;

// A corpus of 2,000 tokens below 61, two bytes each.
inline void write_tokens(const std::string& path) {
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i * i % 61), '\0'};
  write_text(path, tokens);
}

// A directory that goes with the object, and the program run in it.
class Sandbox : public strata::test::TemporaryDirectory {
 public:
  Sandbox() {}  // not left to Clang, which then has no const objects

  // Every path below with what it holds.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      files[entry.path().string()] =
          entry.is_regular_file() ? read_text(entry.path().string()) : "not a file";
    }
    return files;
  }
};

// A model small enough that a run takes a moment, with a tokenizer of the text.
struct SmallModel {
  int layers = 2;
  int hidden = 32;
  int vocabulary = 300;
  int seed = 0;
};

inline void make_model(const Sandbox& sandbox, const std::string& name, const SmallModel& model) {
  Process init({"init",
                "--data",
                STRATA_TEXT,
                "--out",
                name,
                "--vocab-size",
                std::to_string(model.vocabulary),
                "--hidden",
                std::to_string(model.hidden),
                "--layers",
                std::to_string(model.layers),
                "--heads",
                "4",
                "--kv-heads",
                "2",
                "--feed-forward",
                std::to_string(3 * model.hidden),
                "--tied",
                "off",
                "--seed",
                std::to_string(model.seed)},
               {.directory = sandbox.path()});
  ASSERT_EQ(init.wait(), 0) << init.err();
}

// The least --host-memory that a refusal names, in MiB.
inline int64_t least_mib(const std::string& refusal) {
  const std::string marker = "the least that fits is --host-memory ";
  const size_t at = refusal.find(marker);
  EXPECT_NE(at, refusal.npos) << refusal;
  return at == refusal.npos ? 0 : std::atoll(refusal.c_str() + at + marker.size());
}

// The hash of a run's state, of what `strata train` printed; a plan has a line of that name too.
inline std::string state_in(const std::string& out) {
  const std::string name = "\nstate    ";
  const size_t at = out.rfind(name);
  const std::string hash = at == out.npos ? "" : out.substr(at + name.size(), 16);
  EXPECT_TRUE(hash.size() == 16 && hash.find_first_not_of("0123456789abcdef") == hash.npos) << out;
  return hash;
}

}  // namespace strata::cli::test

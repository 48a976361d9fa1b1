// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/launched_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "bindings/cli/job_environment.h"
#include "bindings/cli/job_secret.h"
#include "bindings/cli/stop_signals.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/shell_word.h"
#include "engine/comm/message_auth.h"

namespace strata::cli {
namespace {

constexpr int kSshFailed = 255;
constexpr int kPeerIsGone = 4;
constexpr double kHearS = 30;  // in which machines hear that another one failed, and end
constexpr size_t kSecretBytesMax = 1024;

std::atomic<int> stop_signals = -1;  // an eventfd; all that the signal handler uses

void on_stop_signal(int signal) {
  if (is_new_request(signal)) {
    [[maybe_unused]] const int ignored = eventfd_write(stop_signals, 1);
  }
}

[[noreturn]] void throw_system_call(const char* what) {
  throw system_error(ErrorCode::kIo, fmt::format("launch: {}", what), errno);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// What the shell of machine `node` runs: this program, in this directory.
std::string command_of(const config::Options& launch, size_t node,
                       const std::vector<std::string>& command) {
  std::vector<std::string> words = {std::filesystem::canonical("/proc/self/exe").string(),
                                    "launch",
                                    "--nodes",
                                    std::to_string(launch.nodes),
                                    "--node-rank",
                                    std::to_string(node),
                                    "--rendezvous",
                                    launch.rendezvous,
                                    "--ranks",
                                    std::to_string(launch.ranks),
                                    "--secret-file",
                                    "-",
                                    "--rendezvous-deadline",
                                    std::to_string(launch.rendezvous_deadline)};
  const auto add = [&](const char* name, const std::string& value) {
    if (launch.is_given(name)) words.insert(words.end(), {fmt::format("--{}", name), value});
  };
  add("interface", launch.interface);
  add("max-restarts", std::to_string(launch.max_restarts));
  add("min-ranks", std::to_string(launch.min_ranks));
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  std::string text = "cd " + shell_word(std::filesystem::current_path().string()) + " && exec";
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

// One machine's ssh: its process, the pipe to its standard input, and how it ended.
class Remote {
 public:
  Remote(std::string host, const std::vector<std::string>& args, const std::string& secret)
      : host_(std::move(host)) {
    std::array<int, 2> pipe = {-1, -1};
    if (pipe2(pipe.data(), O_CLOEXEC) != 0) throw_system_call("pipe");
    input_ = pipe[1];
    std::vector<std::string> words = args;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      // A terminal's Ctrl-C reaches this process alone, which asks the machines to end.
      setpgid(0, 0);
      dup2(pipe[0], STDIN_FILENO);
      execvp(argv[0], argv.data());
      _exit(kSshFailed);
    }
    close(pipe[0]);
    if (process_ < 0) throw_system_call("fork");
    ended_ = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
    if (ended_ < 0) throw_system_call("pidfd_open");
    // A machine that is gone already says so by its exit code.
    const std::string line = secret + "\n";
    [[maybe_unused]] const ssize_t ignored = write(input_, line.data(), line.size());
  }
  ~Remote() {
    ask_to_end();
    if (process_ > 0 && code_ < 0) waitpid(process_, nullptr, 0);
    if (ended_ >= 0) close(ended_);
  }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  const std::string& host() const { return host_; }
  int ended() const { return code_ < 0 ? ended_ : -1; }  // for poll()
  int code() const { return code_; }                     // -1: it runs

  void ask_to_end() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  // True when it has ended.
  bool reap() {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) != process_) return false;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }

 private:
  const std::string host_;
  pid_t process_ = 0;
  int input_ = -1;
  int ended_ = -1;
  int code_ = -1;
};

class Remotes {
 public:
  Remotes() : signals_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (signals_ < 0) throw_system_call("eventfd");
    stop_signals = signals_;
    on_stop_signals(on_stop_signal);
    std::signal(SIGPIPE, SIG_IGN);  // an ssh that ends at once
  }
  ~Remotes() { close(signals_); }
  Remotes(const Remotes&) = delete;
  Remotes& operator=(const Remotes&) = delete;

  void start(const std::string& host, const std::vector<std::string>& args,
             const std::string& secret) {
    all_.push_back(std::make_unique<Remote>(host, args, secret));
  }

  // `again`: a machine that failed may be started again by the others' launching processes.
  int wait(bool again) {
    double end_s = 0;
    while (std::ranges::any_of(all_, [](const auto& one) { return one->code() < 0; })) {
      std::vector<pollfd> waits = {{signals_, POLLIN, 0}};
      for (const auto& one : all_) waits.push_back({one->ended(), POLLIN, 0});
      poll(waits.data(), waits.size(), 1000);
      eventfd_t count = 0;
      if (eventfd_read(signals_, &count) == 0) ask_all_to_end();
      for (const auto& one : all_) {
        if (one->code() >= 0 || !one->reap() || one->code() == 0) continue;
        note_failure(*one);
        if (!again && end_s == 0) end_s = now_s() + (one->code() == kSshFailed ? 0 : kHearS);
      }
      if (end_s > 0 && now_s() >= end_s) ask_all_to_end();
    }
    return code_;
  }

 private:
  void ask_all_to_end() {
    for (const auto& one : all_) one->ask_to_end();
  }
  void note_failure(const Remote& one) {
    if (one.code() == kSshFailed) {
      log(LogLevel::kWarning,
          fmt::format("hosts: {}: ssh ended with exit code {} (look at what it prints, and try: "
                      "ssh {} true)",
                      one.host(), one.code(), one.host()));
    }
    const int code = one.code() == kSshFailed ? kPeerIsGone : one.code();
    if (code_ == 0 || code_ == kPeerIsGone) code_ = code;
  }

  const int signals_;
  std::vector<std::unique_ptr<Remote>> all_;
  int code_ = 0;
};

std::string secret_of(const config::Options& launch) {
  return launch.secret_file.empty() ? comm::random_text() : read_secret(launch.secret_file);
}

}  // namespace

int run_on_hosts(const HostFile& hosts, const config::Options& launch,
                 const std::vector<std::string>& command) {
  const std::string secret = secret_of(launch);
  const std::vector<std::string> ssh = words_of(launch.ssh);
  if (ssh.empty()) {
    throw Error(ErrorCode::kConfig, "ssh: it is empty (give a command, such as ssh -p 2222)");
  }
  Remotes remotes;
  for (size_t node = 0; node < hosts.hosts.size(); ++node) {
    std::vector<std::string> args = ssh;
    args.insert(args.end(),
                {ssh_name_of_host(hosts.hosts[node]), command_of(launch, node, command)});
    remotes.start(hosts.hosts[node], args, secret);
  }
  return remotes.wait(launch.max_restarts > 0);
}

void take_secret_from_input() {
  std::string secret;
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n' && secret.size() < kSecretBytesMax) {
    secret += byte;
  }
  setenv("STRATA_SECRET", secret.c_str(), 1);
  unsetenv("STRATA_SECRET_FILE");
}

}  // namespace strata::cli

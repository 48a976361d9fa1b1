// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/launched_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
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
#include "engine/comm/tcp_socket.h"

namespace strata::cli {
namespace {

constexpr int kSshFailed = 255;
constexpr double kHearS = 30;  // in which machines hear that another one failed, and end
constexpr double kEndS = 300;  // in which machines that were asked to end then write a checkpoint
constexpr double kTermS = 3;   // in which an ssh ends after SIGTERM

constexpr int kEndedBeforeSteps = 128 + SIGTERM;  // the exit code of ranks that were asked to end

// All that the signal handler uses.
std::atomic<int> stop_signals = -1;  // an eventfd
std::atomic<int> last_signal = 0;

void on_stop_signal(int signal) {
  if (!is_new_request(signal)) return;
  last_signal = signal;
  [[maybe_unused]] const int ignored = eventfd_write(stop_signals, 1);
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

// Starts `words` with `input` as standard input, in a session of its own: a terminal's Ctrl-C
// reaches this process alone, which asks the machines to end, and no question of ssh waits for its
// keys.
pid_t start_process(std::vector<std::string> words, int input) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> failure = {-1, -1};  // gets the errno of execvp(), or ends with nothing
  if (pipe2(failure.data(), O_CLOEXEC) != 0) throw_system_call("pipe");
  const pid_t process = fork();
  if (process == 0) {
    setsid();
    std::signal(SIGPIPE, SIG_DFL);
    dup2(input, STDIN_FILENO);
    execvp(argv[0], argv.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t ignored = write(failure[1], &error, sizeof(error));
    _exit(kSshFailed);
  }
  int error = process < 0 ? errno : 0;
  close(failure[1]);
  if (process > 0 && read(failure[0], &error, sizeof(error)) > 0) waitpid(process, nullptr, 0);
  close(failure[0]);
  if (error == 0) return process;
  throw system_error(ErrorCode::kConfig, "ssh: cannot start " + words[0], error,
                     "give a command of this machine, such as --ssh \"ssh -p 2222\"");
}

// One machine's ssh: its process, the pipe to its standard input, and how it ended.
class Remote {
 public:
  Remote(std::string host, const std::vector<std::string>& words, const std::string& secret)
      : host_(std::move(host)) {
    std::array<int, 2> pipe = {-1, -1};
    if (pipe2(pipe.data(), O_CLOEXEC) != 0) throw_system_call("pipe");
    input_ = pipe[1];
    process_ = start_process(words, pipe[0]);
    close(pipe[0]);
    ended_ = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
    if (ended_ < 0) throw_system_call("pidfd_open");
    // A machine that is gone already says so by its exit code.
    const std::string line = secret + "\n";
    [[maybe_unused]] const ssize_t ignored = write(input_, line.data(), line.size());
  }
  ~Remote() {
    if (code_ < 0) {
      end_now();
      pollfd end = {ended_, POLLIN, 0};
      poll(&end, 1, static_cast<int>(kTermS * 1000));
      kill(-process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    if (input_ >= 0) close(input_);
    close(ended_);
  }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  const std::string& host() const { return host_; }
  int ended() const { return code_ < 0 ? ended_ : -1; }  // for poll()
  int code() const { return code_; }                     // -1: it runs
  bool is_ended_here() const { return kill_s_ > 0; }

  // In good order, which takes as long as a checkpoint. An ssh that has not even taken the secret
  // does not reach its machine, so nothing is lost with it.
  void ask_to_end() {
    if (input_ < 0) return;
    int unread = 0;
    ioctl(input_, FIONREAD, &unread);
    close(input_);
    input_ = -1;
    if (unread > 0) end_now();
  }
  // Its processes get SIGTERM, and SIGKILL if it lives kTermS later.
  void end_now() {
    if (code_ >= 0 || kill_s_ > 0) return;
    kill_s_ = now_s() + kTermS;
    kill(-process_, SIGTERM);
    kill(-process_, SIGCONT);
  }
  // True when it has ended.
  bool reap() {
    if (kill_s_ > 0 && now_s() > kill_s_) kill(-process_, SIGKILL);
    int status = 0;
    if (waitpid(process_, &status, WNOHANG | WUNTRACED) != process_) return false;
    if (WIFSTOPPED(status)) {
      log(LogLevel::kWarning,
          fmt::format("hosts: {}: ssh is stopped (try: kill -CONT {})", host_, process_));
      return false;
    }
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }

 private:
  const std::string host_;
  pid_t process_ = 0;
  int input_ = -1;
  int ended_ = -1;
  int code_ = -1;
  double kill_s_ = 0;
};

class Remotes {
 public:
  explicit Remotes(std::vector<std::string> ssh)
      : ssh_(std::move(ssh)), signals_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (signals_ < 0) throw_system_call("eventfd");
    stop_signals = signals_;
    on_stop_signals(on_stop_signal);
    std::signal(SIGPIPE, SIG_IGN);  // an ssh that ends at once
  }
  ~Remotes() { close(signals_); }
  Remotes(const Remotes&) = delete;
  Remotes& operator=(const Remotes&) = delete;

  void start(const std::string& host, const std::string& command, const std::string& secret) {
    std::vector<std::string> words = ssh_;
    words.insert(words.end(), {host, command});
    all_.push_back(std::make_unique<Remote>(host, words, secret));
  }

  // `again`: the run may go on without a machine that failed, but not without the first.
  int wait(bool again) {
    eventfd_t requests = 0;
    bool is_ended_early = false;
    double end_s = 0;
    while (std::ranges::any_of(all_, [](const auto& one) { return one->code() < 0; })) {
      std::vector<pollfd> waits = {{signals_, POLLIN, 0}};
      for (const auto& one : all_) waits.push_back({one->ended(), POLLIN, 0});
      poll(waits.data(), waits.size(), 1000);
      eventfd_t count = 0;
      if (eventfd_read(signals_, &count) == 0) requests += count;
      for (const auto& one : all_) {
        if (one->code() >= 0 || !one->reap()) continue;
        // Before the first step ranks end at once where they are asked to, and lose each other.
        const bool is_early = one->code() == kEndedBeforeSteps && !one->is_ended_here();
        is_ended_early = is_ended_early || (requests > 0 && is_early);
        if (one->code() != 0 && !is_ended_early) note_failure(*one);
        const bool ends_run = again ? one == all_.front() : one->code() != 0;
        if (ends_run && end_s == 0) end_s = now_s() + (one->code() == kSshFailed ? 0 : kHearS);
      }
      const bool has_failed = end_s > 0 && now_s() >= end_s;
      if (requests > 0 || has_failed) ask_all_to_end();
      if (requests > 1 || (has_failed && now_s() >= end_s + kEndS)) end_all_now();
    }
    if (is_ended_early) return 128 + last_signal;
    return again && all_.front()->code() == 0 ? 0 : code_;
  }

 private:
  void ask_all_to_end() {
    for (const auto& one : all_) one->ask_to_end();
  }
  void end_all_now() {
    for (const auto& one : all_) one->end_now();
  }
  void note_failure(const Remote& one) {
    log(LogLevel::kWarning, fmt::format("hosts: {}: {}", one.host(), end_of(one)));
    const bool is_lost = one.code() == kSshFailed || one.is_ended_here();
    const int code = is_lost ? kPeerIsGone : one.code();
    if (code_ == 0 || code_ == kPeerIsGone) code_ = code;
  }
  std::string end_of(const Remote& one) const {
    if (one.is_ended_here()) {
      return "ssh did not end by itself, and was ended (look there whether the run has ended)";
    }
    if (one.code() == kSshFailed) {
      return fmt::format(
          "ssh ended with exit code {} (look at what it prints, and try: {} {} true)", one.code(),
          fmt::join(ssh_, " "), one.host());
    }
    return fmt::format("the run there ended with exit code {} (look at what it prints)",
                       one.code());
  }

  const std::vector<std::string> ssh_;
  const int signals_;
  std::vector<std::unique_ptr<Remote>> all_;
  int code_ = 0;
};

// A question that nobody can answer would let the run wait forever.
std::vector<std::string> ssh_of(const config::Options& launch) {
  if (!launch.is_given("ssh")) return {"ssh", "-o", "BatchMode=yes"};
  std::vector<std::string> words = words_of(launch.ssh);
  if (!words.empty()) return words;
  throw Error(ErrorCode::kConfig, "ssh: it is empty (give a command, such as ssh -p 2222)");
}

// A name that only ssh's own file knows would let each machine wait for --rendezvous-deadline.
void require_address(const config::Options& launch) {
  if (launch.is_given("rendezvous")) return;
  const std::string host = comm::parse_endpoint(launch.rendezvous).host;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error == 0) return freeaddrinfo(found);
  throw Error(ErrorCode::kConfig,
              fmt::format("hosts: {}: the other machines meet at the first one, and its address is "
                          "not known here: {} (give --rendezvous HOST:PORT, a name or address of "
                          "that machine, as the others reach it)",
                          host, gai_strerror(error)));
}

std::string secret_of(const config::Options& launch) {
  return launch.secret_file.empty() ? comm::random_text() : read_secret(launch.secret_file);
}

}  // namespace

int run_on_hosts(const HostFile& hosts, const config::Options& launch,
                 const std::vector<std::string>& command) {
  const std::string secret = secret_of(launch);
  require_address(launch);
  Remotes remotes(ssh_of(launch));
  for (size_t node = 0; node < hosts.hosts.size(); ++node) {
    remotes.start(ssh_name_of_host(hosts.hosts[node]), command_of(launch, node, command), secret);
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
  setenv(kByHosts, "1", 1);
  unsetenv("STRATA_SECRET_FILE");
}

}  // namespace strata::cli

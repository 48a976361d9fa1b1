// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "bindings/cli/job_environment.h"
#include "bindings/cli/stop_signals.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace strata::cli {
namespace {

constexpr double kTellS = 3;      // in which ranks hear that another one failed, if they have met
constexpr double kHearS = 15;     // in which ranks hear that another one failed, and end
constexpr double kEndS = 5;       // in which they end after SIGTERM
constexpr double kStoppedS = 26;  // others give a silent rank up after 25 s
constexpr double kRoundS = 1;
constexpr size_t kLongestLine = 64 * 1024;

// All that the signal handler uses.
std::atomic<int> stop_signals = -1;  // an eventfd
std::atomic<int> last_signal = 0;
std::atomic<bool> is_to_pause = false;

void on_pause_signal(int) {
  is_to_pause = true;
}

void on_stop_signal(int signal) {
  if (!is_new_request(signal)) return;
  last_signal = signal;
  [[maybe_unused]] const int ignored = eventfd_write(stop_signals, 1);
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What spawns a process: its own process group, so that a terminal's Ctrl-C reaches it once, from
// the launcher; and for ranks other than 0 a pipe as its output streams.
class Spawn {
 public:
  explicit Spawn(int errors) {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    if (errors < 0) return;
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, errors, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  pid_t run(std::vector<std::string> args, std::vector<std::string> environment) const {
    pid_t process = 0;
    const int error = posix_spawn(&process, "/proc/self/exe", &actions_, &attributes_,
                                  pointers_of(args).data(), pointers_of(environment).data());
    if (error == 0) return process;
    throw system_error(ErrorCode::kIo, "launch: a process cannot be started", error);
  }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

}  // namespace

std::string RanksEnd::text(const std::string& host) const {
  if (rank < 0) return "the ranks lost each other";
  const std::string who =
      host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, host);
  if (is_stuck) return who + " did not answer and was ended";
  if (signal == 0) return fmt::format("{} ended with exit code {}", who, code);
  return fmt::format("{} was ended by signal {} ({})", who, signal, strsignal(signal));
}

// The kernel tells of each change once. A process that has run and is stopped anew since the last
// look shows as another stop.
double Pause::look(pid_t process, double passed_s) {
  siginfo_t info = {};
  const auto id = static_cast<id_t>(process);
  if (waitid(P_PID, id, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid == process) {
    is_stopped_ = info.si_code == CLD_STOPPED;
    stopped_s_ = 0;
  }
  if (is_stopped_) stopped_s_ += passed_s;
  return stopped_s_;
}

Launcher::Launcher(int input) : signals_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), input_(input) {
  if (signals_ < 0) throw system_error(ErrorCode::kIo, "launch: eventfd", errno);
  stop_signals = signals_;
  on_stop_signals(on_stop_signal);
  // Ranks are in the background of a terminal, and may write to it however it is set.
  std::signal(SIGTTOU, SIG_IGN);
  if (std::signal(SIGTSTP, on_pause_signal) == SIG_IGN) std::signal(SIGTSTP, SIG_IGN);
}

Launcher::~Launcher() {
  for (Rank& rank : ranks_) {
    if (rank.process > 0) kill(rank.process, SIGKILL);
    if (rank.process > 0) waitpid(rank.process, nullptr, 0);
    if (rank.ended >= 0) close(rank.ended);
    if (rank.errors >= 0) close(rank.errors);
  }
  close(signals_);
}

void Launcher::start(int index) {
  StartedRank place = first_;
  place.rank += index;
  std::array<int, 2> pipe = {-1, -1};
  if (place.rank > 0 && pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw system_error(ErrorCode::kIo, "launch: pipe", errno);
  }
  std::vector<std::string> args = {"strata"};
  args.insert(args.end(), args_.begin(), args_.end());
  Rank& started = ranks_[static_cast<size_t>(index)];
  started.errors = pipe[0];
  try {
    started.process = Spawn(pipe[1]).run(args, environment_of(job_, place));
  } catch (const Error&) {
    if (pipe[1] >= 0) close(pipe[1]);
    throw;
  }
  if (pipe[1] >= 0) close(pipe[1]);
  started.ended = static_cast<int>(syscall(SYS_pidfd_open, started.process, 0));
  if (started.ended < 0) throw system_error(ErrorCode::kIo, "launch: pidfd_open", errno);
}

bool Launcher::any_left() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.process > 0 || rank.errors >= 0; });
}

RanksEnd Launcher::run(std::vector<std::string> args, LaunchedJob job, StartedRank first) {
  args_ = std::move(args);
  job_ = std::move(job);
  first_ = std::move(first);
  ranks_ = std::vector<Rank>(static_cast<size_t>(first_.ranks_on_node));
  end_ = {};
  failed_s_ = looked_s_ = 0;
  is_told_ = is_ending_ = false;
  for (int index = 0; index < first_.ranks_on_node; ++index) start(index);
  while (any_left()) {
    // poll() leaves out negative descriptors.
    std::vector<pollfd> waits = {{signals_, POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      waits.push_back({rank.errors, POLLIN, 0});
      waits.push_back({rank.ended, POLLIN, 0});
    }
    waits.push_back({input_, POLLIN, 0});
    poll(waits.data(), waits.size(), static_cast<int>(kRoundS * 1000));
    pause_if_asked();
    eventfd_t count = 0;
    if (eventfd_read(signals_, &count) == 0) {
      requests_ += static_cast<int>(count);
      forward(last_signal);
    }
    if (input_ends()) forward(SIGTERM);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (waits[1 + 2 * i].revents != 0) read_errors(static_cast<int>(i));
      if (waits[2 + 2 * i].revents != 0) reap(static_cast<int>(i));
    }
    end_those_stopped();
    end_those_left();
  }
  return end_;
}

int Launcher::requests() {
  pause_if_asked();
  eventfd_t count = 0;
  if (eventfd_read(signals_, &count) == 0) requests_ += static_cast<int>(count);
  (void)input_ends();
  return requests_;
}

bool Launcher::input_ends() {
  pollfd wait = {input_, POLLIN, 0};
  char byte = 0;
  if (poll(&wait, 1, 0) <= 0 || read(input_, &byte, 1) > 0) return false;
  input_ = -1;
  ++requests_;
  return true;
}

// A terminal's Ctrl-Z reaches this process alone.
void Launcher::pause_if_asked() {
  if (!is_to_pause.exchange(false)) return;
  forward(SIGSTOP);
  raise(SIGSTOP);
  forward(SIGCONT);
}

void Launcher::forward(int signal) {
  for (const Rank& rank : ranks_) {
    if (rank.process > 0) kill(rank.process, signal);
  }
}

void Launcher::read_errors(int index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  std::array<char, 4096> bytes;
  const ssize_t count = read(rank.errors, bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  for (ssize_t i = 0; i < count; ++i) {
    const char byte = bytes[static_cast<size_t>(i)];
    if (byte == '\n' || rank.line.size() == kLongestLine) print_line(index);
    if (byte != '\n') rank.line += byte;
  }
  if (count > 0) return;
  if (!rank.line.empty()) print_line(index);
  close(rank.errors);
  rank.errors = -1;
}

void Launcher::print_line(int index) {
  std::string& line = ranks_[static_cast<size_t>(index)].line;
  const std::string text = fmt::format("[rank {}] {}\n", first_.rank + index, line);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
  line.clear();
}

void Launcher::reap(int index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  int status = 0;
  if (waitpid(rank.process, &status, WNOHANG) != rank.process) return;
  rank.process = 0;
  close(rank.ended);
  rank.ended = -1;
  note_end(index, status);
}

void Launcher::note_end(int index, int status) {
  constexpr int kSignalled = 128;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = signal > 0 ? kSignalled + signal : WEXITSTATUS(status);
  if (code == 0) return;
  if (failed_s_ == 0) failed_s_ = now_s();
  if (is_ending_ || end_.rank >= 0) return;
  if (code == kHeardExitCode) {
    end_.code = kPeerIsGone;
    return;
  }
  const bool is_stuck = ranks_[static_cast<size_t>(index)].is_stuck;
  end_ = {.code = code, .rank = first_.rank + index, .signal = signal, .is_stuck = is_stuck};
}

// A rank that is stopped would not hear that another one failed. A time in which this process was
// stopped too does not count.
void Launcher::end_those_stopped() {
  const double passed_s = std::min(now_s() - looked_s_, 2 * kRoundS);
  looked_s_ = now_s();
  for (int i = 0; i < first_.ranks_on_node; ++i) {
    Rank& rank = ranks_[static_cast<size_t>(i)];
    if (rank.process == 0) continue;
    const double stopped_s = rank.pause.look(rank.process, passed_s);
    const double limit_s = failed_s_ > 0 ? 0 : kStoppedS;
    if (rank.is_stuck || stopped_s <= limit_s) continue;
    log(LogLevel::kWarning,
        fmt::format("launch: rank {} is paused by a signal: it is killed", first_.rank + i));
    rank.is_stuck = true;
    kill(rank.process, SIGKILL);
  }
}

void Launcher::end_those_left() {
  if (end_.rank >= 0 && !is_told_ && now_s() - failed_s_ > kTellS) {
    is_told_ = true;
    forward(SIGTERM);
  }
  if (failed_s_ == 0 || now_s() - failed_s_ < kHearS) return;
  for (int i = 0; i < first_.ranks_on_node; ++i) {
    if (ranks_[static_cast<size_t>(i)].process == 0 || is_ending_) continue;
    log(LogLevel::kWarning,
        fmt::format("launch: rank {} did not end in time: it is killed", first_.rank + i));
    if (end_.rank < 0) end_ = {.code = kPeerIsGone, .rank = first_.rank + i, .is_stuck = true};
  }
  is_ending_ = true;
  forward(now_s() - failed_s_ < kHearS + kEndS ? SIGTERM : SIGKILL);
}

}  // namespace strata::cli

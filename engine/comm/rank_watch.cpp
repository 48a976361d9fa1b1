// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/rank_watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace strata::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Milliseconds kLook{50};     // from one look at the files to the next
constexpr Milliseconds kMoment{500};  // that a file of another rank may take to be seen
// How long a rank may be gone while another still waits: what it sent before it ended arrives.
constexpr Milliseconds kGone{1000};

std::string alive_path(const std::string& path, int rank) {
  return fmt::format("{}.{}.alive", path, rank);
}

}  // namespace

RankWatch::RankWatch(std::string path, int rank, int size)
    : path_(std::move(path)), rank_(rank), size_(size) {
  const std::string own = alive_path(path_, rank_);
  lock_ = ::open(own.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (lock_ >= 0) ::close(lock_);
    throw system_error(ErrorCode::kIo, "cannot lock: " + own, error);
  }
  watcher_ = start_thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mu_);
    ended_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  ::close(lock_);
}

bool RankWatch::enter(std::function<void()> interrupt) {
  const std::lock_guard lock(mu_);
  if (stopped_) return false;
  interrupt_ = std::move(interrupt);
  return true;
}

void RankWatch::leave() {
  const std::lock_guard lock(mu_);
  interrupt_ = nullptr;
}

bool RankWatch::stop(const std::string& reason) {
  const std::lock_guard lock(mu_);
  if (stopped_) return false;
  publish(fmt::format("rank {} stopped: {}", rank_, reason));
  end_wait();
  return true;
}

// The first cause that any rank links to the one name stays.
void RankWatch::publish(const std::string& cause) const {
  const std::string own = fmt::format("{}.{}", path_, rank_);
  std::ofstream(own) << cause;
  std::error_code ignored;
  std::filesystem::create_hard_link(own, path_ + ".stopped", ignored);
  std::filesystem::remove(own, ignored);
}

void RankWatch::end_wait() {
  stopped_ = true;
  if (interrupt_) interrupt_();
}

// The ranks whose lock is free, "1, 3".
std::string RankWatch::gone() const {
  std::string ranks;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const int fd = ::open(alive_path(path_, r).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_SH | LOCK_NB) == 0)
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    ::close(fd);
  }
  return ranks;
}

void RankWatch::watch() {
  auto alive_until = Clock::now();
  std::unique_lock lock(mu_);
  while (!ended_ && !stopped_) {
    changed_.wait_for(lock, kLook, [&] { return ended_; });
    if (ended_ || stopped_) return;
    if (std::filesystem::exists(path_ + ".stopped")) return end_wait();
    const std::string ranks = interrupt_ ? gone() : "";
    if (ranks.empty()) alive_until = Clock::now();
    if (Clock::now() - alive_until > kGone) {
      publish(fmt::format("rank {} is gone (did its process end?)", ranks));
      return end_wait();
    }
  }
}

void RankWatch::throw_if_stopped(const std::string& call) const {
  const std::lock_guard lock(mu_);
  if (stopped_) throw_cause(call);
}

void RankWatch::throw_if_said(const std::string& call) const {
  for (const auto end = Clock::now() + kMoment; Clock::now() < end;) {
    if (std::filesystem::exists(path_ + ".stopped")) throw_cause(call);
    std::this_thread::sleep_for(Milliseconds(5));
  }
}

void RankWatch::throw_cause(const std::string& call) const {
  std::ifstream file(path_ + ".stopped");
  const std::string cause{std::istreambuf_iterator<char>(file), {}};
  throw Error(ErrorCode::kPeer, fmt::format("{}: {}", call, cause));
}

}  // namespace strata::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace strata::comm {

// Which ranks of a group live, and why the group stopped, by files that all ranks see: a rank that
// stops writes why, by which the first reason stays; and each holds a lock on a file of its own,
// which the system takes away when its process ends. A thread looks at these files and interrupts
// the wait that is under way.
//
// Threads: stop() from any; enter() and leave() from one. Failure: Error (kIo) where the files
// cannot be made.
class RankWatch {
 public:
  // Files begin with `path`.
  RankWatch(std::string path, int rank, int size);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // A wait begins that `interrupt` can end. False where the group has stopped: there is nothing to
  // wait for.
  bool enter(std::function<void()> interrupt);
  void leave();

  // True the first time that this rank stops or hears of it.
  bool stop(const std::string& reason);

  // Throws Error (kPeer) with the reason; `call` is the beginning of its text.
  void throw_if_stopped(const std::string& call) const;
  // The same where the reason is there within a moment: files of others may take that to be seen.
  void throw_if_said(const std::string& call) const;

 private:
  void watch();
  void publish(const std::string& cause) const;
  void end_wait();
  std::string gone() const;
  [[noreturn]] void throw_cause(const std::string& call) const;

  // Constant after construction
  const std::string path_;
  const int rank_;
  const int size_;
  int lock_ = -1;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> interrupt_;  // of the wait under way
  bool stopped_ = false;
  bool ended_ = false;
  std::jthread watcher_;
};

}  // namespace strata::comm

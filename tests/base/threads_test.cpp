// SPDX-License-Identifier: Apache-2.0
#include "engine/base/threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>

namespace strata {
namespace {

// The caller blocks a signal for a while, so the system looks for another thread that takes it.
TEST(Threads, TakeNoSignals) {
  static std::atomic<int> handled;
  struct sigaction counts = {}, before = {};
  counts.sa_handler = [](int) { ++handled; };
  sigaction(SIGUSR1, &counts, &before);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  std::atomic<bool> stop = false;
  std::jthread thread = start_thread([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  pthread_sigmask(SIG_BLOCK, &one, nullptr);
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(handled, 0);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  EXPECT_EQ(handled, 1) << "the caller takes it";
  stop = true;
  thread.join();
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(Threads, OnesOwnGivesItsResultOrItsFailure) {
  const auto own = on_own_thread([] { return std::this_thread::get_id(); });
  EXPECT_NE(own, std::this_thread::get_id());
  EXPECT_THROW(on_own_thread([]() -> int { throw std::runtime_error("no"); }), std::runtime_error);
}

}  // namespace
}  // namespace strata

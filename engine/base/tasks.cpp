// SPDX-License-Identifier: Apache-2.0
#include "engine/base/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "engine/base/threads.h"

namespace strata {

void run_tasks(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::exception_ptr> failures(tasks.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) {
      try {
        tasks[i]();
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const size_t threads = std::min<size_t>(tasks.size(), std::thread::hardware_concurrency());
    try {
      while (others.size() + 1 < threads) others.push_back(start_thread(work));
    } catch (const Error&) {
      // The threads that are there do the work.
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace strata

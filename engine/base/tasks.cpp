// SPDX-License-Identifier: Apache-2.0
#include "engine/base/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "engine/base/threads.h"

namespace strata {

namespace {

thread_local bool is_in_task = false;

}  // namespace

void run_tasks(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::exception_ptr> failures(tasks.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    const bool was_in_task = std::exchange(is_in_task, true);
    for (size_t i = next++; i < tasks.size(); i = next++) {
      try {
        tasks[i]();
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
    is_in_task = was_in_task;
  };
  {
    std::vector<std::jthread> others;
    const size_t cores = is_in_task ? 1 : std::thread::hardware_concurrency();
    const size_t threads = std::min(tasks.size(), cores);
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

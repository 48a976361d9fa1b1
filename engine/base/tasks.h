// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

namespace strata {

// Runs tasks that share nothing which one of them writes, each once, on this thread and on others:
// at most one thread for each core that the process may use, and fewer where the system refuses
// them. A task's own tasks run on its thread. They begin in the order of the list, so the longest
// belongs in front. Returns when all have ended, then throws what the first failed one in the list
// threw. Others use the caller's environment.
void run_tasks(const std::vector<std::function<void()>>& tasks);

}  // namespace strata

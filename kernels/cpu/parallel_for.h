// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdint>

#include "engine/base/check.h"
#include "kernels/cpu/handover.h"
#include "kernels/workspace.h"

// Loops over fixed tasks in the calling thread's arena. A task's result depends only on its index,
// not on the thread that runs it.
namespace strata::kernels::cpu {

inline int thread_count() {
  return tbb::this_task_arena::max_concurrency();
}

// Calls body(index, slot) for every index in [0, count). `slot` < thread_count() belongs to the
// running thread. A loop without parallelism uses slot 0 on any thread, because an arena of one
// thread may hand a call to a worker whose index is 1.
template <typename Body>
void parallel_for(int64_t count, const Body& body) {
  if (count == 1 || thread_count() == 1) {
    for (int64_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  Handover handover;
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, count, 1),
      [&](const tbb::blocked_range<int64_t>& range) {
        handover.enter();
        const int slot = tbb::this_task_arena::current_thread_index();
        for (int64_t index = range.begin(); index < range.end(); ++index) body(index, slot);
        handover.leave();
      },
      tbb::simple_partitioner());
  handover.join();
}

// Calls body(begin, end) for each block of `block` elements of [0, count).
template <typename Body>
void parallel_blocks(int64_t count, int64_t block, const Body& body) {
  parallel_for((count + block - 1) / block, [&](int64_t index, int) {
    body(index * block, std::min(count, (index + 1) * block));
  });
}

}  // namespace strata::kernels::cpu

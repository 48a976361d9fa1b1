// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <latch>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/float_modes.h"
#include "engine/base/threads.h"
#include "kernels/cpu/handover.h"

namespace strata::kernels {
namespace {

// TBB starts its workers when they have work, and ends the process when it is refused one.
void require_threads(int count) {
  std::latch over(1);
  std::vector<std::jthread> threads;
  try {
    while (std::ssize(threads) < count) {
      threads.push_back(start_thread([&over] { over.wait(); }));
    }
  } catch (...) {
    over.count_down();
    throw;
  }
  over.count_down();
}

}  // namespace

struct Parallel::Arena {
  // The arena's threads work with the modes of floats that are set here.
  explicit Arena(int threads) : arena(threads) {
    const DefaultFloatModes modes;
    arena.initialize();
  }
  tbb::task_arena arena;
};

Parallel::Parallel(int threads) {
  STRATA_CHECK(threads >= 1);
  // TBB has no more workers than this, and prints a warning where an arena asks for more.
  const auto most = static_cast<int>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  threads = std::min(threads, most);
  require_threads(threads - 1);
  arena_ = std::make_unique<Arena>(threads);
}
Parallel::~Parallel() = default;
Parallel::Parallel(Parallel&&) noexcept = default;
Parallel& Parallel::operator=(Parallel&&) noexcept = default;

void Parallel::run_erased(void (*function)(void*), void* target) const {
  const DefaultFloatModes modes;
  cpu::Handover handover;
  // When the arena is full, one of its threads runs the function.
  arena_->arena.execute([&] {
    handover.enter();
    function(target);
    handover.leave();
  });
  handover.join();
}

}  // namespace strata::kernels

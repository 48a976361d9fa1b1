// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <tbb/task_arena.h>

#include "engine/base/check.h"
#include "kernels/cpu/handover.h"

namespace strata::kernels {

struct Parallel::Arena {
  explicit Arena(int threads) : arena(threads) { arena.initialize(); }
  tbb::task_arena arena;
};

Parallel::Parallel(int threads) : threads_(threads) {
  STRATA_CHECK(threads >= 1);
  arena_ = std::make_unique<Arena>(threads);
}
Parallel::~Parallel() = default;
Parallel::Parallel(Parallel&&) noexcept = default;
Parallel& Parallel::operator=(Parallel&&) noexcept = default;

void Parallel::run_erased(void (*function)(void*), void* target) const {
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

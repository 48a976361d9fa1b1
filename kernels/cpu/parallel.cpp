// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <tbb/task_arena.h>

#include "engine/base/check.h"

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
  arena_->arena.execute([&] { function(target); });
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

namespace strata::kernels {

// The threads that kernels run on: at most `threads` of them, the caller's own included.
//
// Guarantees: kernels called inside run() use no other threads; results do not depend on the count.
// Threads: run() may be called from several threads, which then share the workers; a workspace
// belongs to one call at a time. Failure: an exception of the function leaves run().
class Parallel {
 public:
  explicit Parallel(int threads);
  ~Parallel();
  Parallel(Parallel&&) noexcept;
  Parallel& operator=(Parallel&&) noexcept;

  int threads() const { return threads_; }

  template <typename Function>
  void run(Function&& function) const {
    using Plain = std::remove_reference_t<Function>;
    run_erased([](void* target) { (*static_cast<Plain*>(target))(); },
               const_cast<void*>(static_cast<const void*>(std::addressof(function))));
  }

 private:
  void run_erased(void (*function)(void*), void* target) const;

  struct Arena;
  int threads_ = 1;
  std::unique_ptr<Arena> arena_;
};

}  // namespace strata::kernels

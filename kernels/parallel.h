// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

namespace strata::kernels {

// The threads that kernels run on: at most `threads` of them, including the caller's, and at most
// as many as the process has CPUs.
//
// Guarantees: kernels called inside run() use no other threads; results do not depend on the number
// of threads. Threads: run() may be called from several threads, which then share the workers; a
// workspace belongs to one call at a time. Failure: construction throws Error (kIo) when the system
// refuses so many threads; run() passes on an exception of the function.
class Parallel {
 public:
  explicit Parallel(int threads);
  ~Parallel();
  Parallel(Parallel&&) noexcept;
  Parallel& operator=(Parallel&&) noexcept;

  template <typename Function>
  void run(Function&& function) const {
    using Plain = std::remove_reference_t<Function>;
    run_erased([](void* target) { (*static_cast<Plain*>(target))(); },
               const_cast<void*>(static_cast<const void*>(std::addressof(function))));
  }

 private:
  void run_erased(void (*function)(void*), void* target) const;

  struct Arena;
  std::unique_ptr<Arena> arena_;
};

}  // namespace strata::kernels

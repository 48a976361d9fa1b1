// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace strata::kernels::cpu {

// Tells the thread sanitizer how oneTBB, which is not instrumented, orders a call and its bodies on
// other threads: the caller's work happens before enter(), and a body's work before leave() happens
// before join() returns. Does nothing in other builds.
class Handover {
 public:
#if defined(__SANITIZE_THREAD__)
  Handover() {
    __tsan_release(&begun_);
  }
  void enter() {
    __tsan_acquire(&begun_);
  }
  void leave() {
    __tsan_release(&ended_);
  }
  void join() {
    __tsan_acquire(&ended_);
  }

 private:
  char begun_ = 0;
  char ended_ = 0;
#else
  void enter() {}
  void leave() {}
  void join() {}
#endif
};

}  // namespace strata::kernels::cpu

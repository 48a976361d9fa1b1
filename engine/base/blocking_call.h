// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata {

// A system call on a file that may never return: its drive hangs, or the server that it is on is
// gone. While the object lives, a thread of the process watches the call. It warns after 30 s; when
// the deadline has passed it prints the error and ends the process with exit code 4, since a
// thread that waits in the kernel can be neither stopped nor left behind.
//
// Threads: any number. Cost: a lock. Failure: the first one of a process throws Error (kIo) where
// no thread can be started. `path` must outlive it.
class BlockingCall {
 public:
  // `what`, such as "read", is a literal.
  BlockingCall(const char* what, const std::string& path);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

  // Of every call of this process; 600 s by default.
  static void set_deadline(double seconds);
  static double deadline_s();

 private:
  friend class BlockingCalls;
  const char* what_;
  const std::string& path_;
  double begin_s_;
  bool warned_ = false;
  BlockingCall* previous_ = nullptr;  // Guarded by the lock of BlockingCalls
  BlockingCall* next_ = nullptr;      // Guarded by it too
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace strata {

// What kind of thing went wrong outside of the program. The command line maps each to an exit code.
enum class ErrorCode {
  kUsage,        // wrong flag or subcommand                                    exit 2
  kConfig,       // a value, file or directory that cannot be used              exit 2
  kDoesNotFit,   // budgets or limits are too small                             exit 3
  kIo,           // a file or device failed                                     exit 4
  kCorrupt,      // bytes are not what was written: checksum, truncation        exit 4
  kNumeric,      // a loss or gradient that is not finite, where that stops     exit 4
  kPeer,         // another rank failed or is gone                              exit 4
  kDevice,       // a device failed, or an op does not match its plan           exit 4
  kDeadline,     // a wait took longer than its deadline                        exit 4
  kInterrupted,  // asked to stop                                               exit 4
};

// An error that files, memory, devices, peers or user input caused. `message` reads
// "what failed: object: cause (what to do)".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_code() const;

 private:
  ErrorCode code_;
};

// The text of an exception that was caught.
std::string text_of(const std::exception_ptr& failure);

// The Error of a failed system call: appends strerror(errno_value) and advice (see advice.h).
Error system_error(ErrorCode code, const std::string& what, int errno_value,
                   const std::string& advice = "");

}  // namespace strata

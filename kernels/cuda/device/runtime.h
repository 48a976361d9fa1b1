// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>
#include <string>

// Errors of the CUDA runtime, and what all queues of a device share.
namespace strata::kernels::cuda {

// Throws Error{kDevice} "cuda: <what>: <the library's words> (<advice>)" unless the call succeeded.
void check(cudaError_t error, const std::string& what);
void check(cublasStatus_t status, const std::string& what);

// Makes the device current that was so before, unless no call of this process has used it yet:
// that call would make a context there, which takes memory, and fails where another program has the
// device alone.
void restore_device(int before) noexcept;

// Makes a device current for a scope. Callers' threads have a current device of their own.
class OnDevice {
 public:
  OnDevice(int index, const std::string& what);
  explicit OnDevice(int index) noexcept;  // where there is nothing to do about an error
  ~OnDevice() { restore_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// The first failure on any queue of a device. Errors of CUDA are sticky: after one, nothing on the
// device can be trusted, so every call on every queue fails with it. Threads: any.
class FirstFailure {
 public:
  void set(std::exception_ptr failure);
  void throw_if_any() const;

 private:
  mutable std::mutex mu_;
  std::exception_ptr failure_;  // Guarded by mu_
};

}  // namespace strata::kernels::cuda

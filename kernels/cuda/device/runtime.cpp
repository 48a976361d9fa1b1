// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/runtime.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace strata::kernels::cuda {
namespace {

// What the user can do about an error.
const char* advice_on(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
      return "install NVIDIA's driver, or one that is new enough for this CUDA";
    case cudaErrorMemoryAllocation:
      return "lower --device-memory, or end other programs on the GPU";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
      return "build with STRATA_CUDA_ARCHITECTURES for this GPU";
    case cudaErrorDevicesUnavailable:
      return "end the program that uses the GPU alone";
    default:
      return "run `dmesg | grep NVRM` for faults of the GPU; start again from the checkpoint";
  }
}

}  // namespace

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorCode::kDevice,
              fmt::format("cuda: {}: {}: {} ({})", what, cudaGetErrorName(error),
                          cudaGetErrorString(error), advice_on(error)));
}

namespace {

// Of the driver: int is its CUresult, and its CUdevice.
using PrimaryState = int (*)(int device, unsigned* flags, int* is_active);

PrimaryState find_primary_state() {
  constexpr unsigned kVersion = 7000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found,
                                                             kVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
  return reinterpret_cast<PrimaryState>(found);
}

bool has_context(int device) {
  static const PrimaryState state = find_primary_state();
  unsigned flags = 0;
  int is_active = 0;
  return state == nullptr || state(device, &flags, &is_active) != 0 || is_active != 0;
}

}  // namespace

void restore_device(int before) noexcept {
  int now = before;
  if (cudaGetDevice(&now) == cudaSuccess && now == before) return;
  if (has_context(before)) cudaSetDevice(before);
}

OnDevice::OnDevice(int index, const std::string& what) {
  check(cudaGetDevice(&before_), what);
  check(cudaSetDevice(index), what);
}

OnDevice::OnDevice(int index) noexcept {
  cudaGetDevice(&before_);
  cudaSetDevice(index);
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kDevice,
              fmt::format("cuda: {}: {} (this is a fault of cuBLASLt or of its call)", what,
                          cublasLtGetStatusString(status)));
}

void FirstFailure::set(std::exception_ptr failure) {
  const std::lock_guard lock(mu_);
  if (!failure_) failure_ = std::move(failure);
}

void FirstFailure::throw_if_any() const {
  const std::lock_guard lock(mu_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace strata::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <string>

#include "kernels/attention.h"

namespace strata::kernels::cuda {

// Attention by the fused kernels of cuDNN, which is loaded at run time where it is installed. The
// backward is deterministic: reruns give the same bits.
//
// A kernel is chosen once for each shape, by the shape alone. Calls that cuDNN does not take, of
// f32 for example, and all calls without cuDNN are left to the caller (ops/attention.h).
//
// Threads: any. Failure: Error{kDevice}. Memory: cuDNN's own, and its kernels, for each shape when
// it comes first; scratch is the op's workspace (cuda/sizes.h).
class FusedAttention {
 public:
  explicit FusedAttention(int device);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  // Issues the op, or issues nothing and returns false.
  bool run(cudaStream_t stream, const AttentionForward& op);
  bool run(cudaStream_t stream, const AttentionBackward& op);

  // Ops issued so far. Threads: any.
  int64_t ops() const { return ops_; }

  // "cuDNN 9.19.0", or why attention is without it. Threads: any.
  static std::string software();

 private:
  struct Kernels;
  const std::unique_ptr<Kernels> kernels_;  // null: without cuDNN
  std::atomic<int64_t> ops_ = 0;
};

}  // namespace strata::kernels::cuda

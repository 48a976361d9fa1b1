// SPDX-License-Identifier: Apache-2.0
#include "kernels/description.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "kernels/attention.h"
#include "kernels/cached_attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/sizes.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/sum_squares.h"
#include "kernels/typed.h"

namespace strata::kernels {
namespace {

// Scratch of the plain loops: a row of logits, sums of a row of one head.
int64_t ref_bytes(const LinearCrossEntropy& op) {
  return op.vocabulary * 4;
}
int64_t ref_bytes(const AttentionForward& op) {
  return op.head_size * 4;
}
int64_t ref_bytes(const CachedAttention& op) {
  return op.head_size * 4;
}
int64_t ref_bytes(const AttentionBackward& op) {
  return 2 * op.head_size * 4;
}
template <typename Op>
int64_t ref_bytes(const Op&) {
  return 0;
}

}  // namespace

void require_possible(const DeviceDescription& device) {
  const bool taken = device.interior == DType::kF32 ||
                     (device.kernels != KernelSet::kCpu && is_weight_type(device.interior));
  if (taken) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("device: {}: its kernels do not support interiors in {} (use F32)",
                          device.name, name_of(device.interior)));
}

template <typename Op>
int64_t workspace_bytes(const Op& op, const DeviceDescription& device) {
  switch (device.kernels) {
    case KernelSet::kRef:
      return ref_bytes(op);
    case KernelSet::kCuda:
      return cuda::bytes_needed(op, device.interior);
    case KernelSet::kCpu:
      break;
  }
  return workspace_bytes(op, device.threads);
}

template int64_t workspace_bytes(const MatMulForward&, const DeviceDescription&);
template int64_t workspace_bytes(const MatMulInput&, const DeviceDescription&);
template int64_t workspace_bytes(const MatMulWeight&, const DeviceDescription&);
template int64_t workspace_bytes(const AttentionForward&, const DeviceDescription&);
template int64_t workspace_bytes(const CachedAttention&, const DeviceDescription&);
template int64_t workspace_bytes(const AttentionBackward&, const DeviceDescription&);
template int64_t workspace_bytes(const RmsNormBackward&, const DeviceDescription&);
template int64_t workspace_bytes(const LayerNormBackward&, const DeviceDescription&);
template int64_t workspace_bytes(const LinearCrossEntropy&, const DeviceDescription&);
template int64_t workspace_bytes(const SumSquares&, const DeviceDescription&);

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops.h"
#include "kernels/ref/ops.h"

namespace strata::kernels {

const Backend& cpu_backend() {
  static constexpr Backend kBackend = {
      {
          .name = "cpu",
          .matmul_forward = cpu::matmul_forward,
          .matmul_input = cpu::matmul_input,
          .matmul_weight = cpu::matmul_weight,
          .rms_norm_forward = cpu::rms_norm_forward,
          .rms_norm_backward = cpu::rms_norm_backward,
          .layer_norm_forward = cpu::layer_norm_forward,
          .layer_norm_backward = cpu::layer_norm_backward,
          .rope = cpu::rope,
          .attention_forward = cpu::attention_forward,
          .attention_backward = cpu::attention_backward,
          .glu_forward = cpu::glu_forward,
          .glu_backward = cpu::glu_backward,
          .embedding_forward = cpu::embedding_forward,
          .embedding_backward = cpu::embedding_backward,
          .position_forward = cpu::position_forward,
          .position_backward = cpu::position_backward,
          .linear_cross_entropy = cpu::linear_cross_entropy,
          .gather_rows = ref::gather_rows,
          .add_residual = cpu::add_residual,
          .add = cpu::add,
          .fill = cpu::fill,
          .soft_cap = cpu::soft_cap,
          .cast = cpu::cast,
          .adamw = cpu::adamw,
          .sum_squares = cpu::sum_squares,
      },
      cpu::convert_in,
      cpu::convert_out,
      KernelSet::kCpu,
  };
  return kBackend;
}

}  // namespace strata::kernels

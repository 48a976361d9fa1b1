// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/ops.h"

namespace strata::kernels {

const Backend& ref_backend() {
  static constexpr Backend kBackend = {
      {
          .name = "ref",
          .matmul_forward = ref::matmul_forward,
          .matmul_input = ref::matmul_input,
          .matmul_weight = ref::matmul_weight,
          .rms_norm_forward = ref::rms_norm_forward,
          .rms_norm_backward = ref::rms_norm_backward,
          .layer_norm_forward = ref::layer_norm_forward,
          .layer_norm_backward = ref::layer_norm_backward,
          .rope = ref::rope,
          .attention_forward = ref::attention_forward,
          .attention_backward = ref::attention_backward,
          .glu_forward = ref::glu_forward,
          .glu_backward = ref::glu_backward,
          .embedding_forward = ref::embedding_forward,
          .embedding_backward = ref::embedding_backward,
          .position_forward = ref::position_forward,
          .position_backward = ref::position_backward,
          .linear_cross_entropy = ref::linear_cross_entropy,
          .gather_rows = ref::gather_rows,
          .add_residual = ref::add_residual,
          .add = ref::add,
          .fill = ref::fill,
          .soft_cap = ref::soft_cap,
          .cast = ref::cast,
          .adamw = ref::adamw,
          .sum_squares = ref::sum_squares,
      },
      ref::convert_in,
      ref::convert_out,
      KernelSet::kRef,
  };
  return kBackend;
}

}  // namespace strata::kernels

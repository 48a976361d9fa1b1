// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/device.h"

namespace strata::kernels {

// The table of a device whose queues run ops of a host table: `Issue<Member>::op(queue, op)` issues
// the op at OpTable<>::*Member.
template <template <auto> class Issue>
constexpr DeviceOps make_issue_table(const char* name) {
  using T = OpTable<>;
  return {
      .name = name,
      .matmul_forward = Issue<&T::matmul_forward>::op,
      .matmul_input = Issue<&T::matmul_input>::op,
      .matmul_weight = Issue<&T::matmul_weight>::op,
      .rms_norm_forward = Issue<&T::rms_norm_forward>::op,
      .rms_norm_backward = Issue<&T::rms_norm_backward>::op,
      .layer_norm_forward = Issue<&T::layer_norm_forward>::op,
      .layer_norm_backward = Issue<&T::layer_norm_backward>::op,
      .rope = Issue<&T::rope>::op,
      .attention_forward = Issue<&T::attention_forward>::op,
      .attention_backward = Issue<&T::attention_backward>::op,
      .glu_forward = Issue<&T::glu_forward>::op,
      .glu_backward = Issue<&T::glu_backward>::op,
      .embedding_forward = Issue<&T::embedding_forward>::op,
      .embedding_backward = Issue<&T::embedding_backward>::op,
      .position_forward = Issue<&T::position_forward>::op,
      .position_backward = Issue<&T::position_backward>::op,
      .linear_cross_entropy = Issue<&T::linear_cross_entropy>::op,
      .gather_rows = Issue<&T::gather_rows>::op,
      .add_residual = Issue<&T::add_residual>::op,
      .add = Issue<&T::add>::op,
      .fill = Issue<&T::fill>::op,
      .soft_cap = Issue<&T::soft_cap>::op,
      .cast = Issue<&T::cast>::op,
      .adamw = Issue<&T::adamw>::op,
      .sum_squares = Issue<&T::sum_squares>::op,
  };
}

// The op struct of a member of a table: `Op` of void (*)(Where..., const Op&).
template <typename Member>
struct OpOf;
template <typename Table, typename Op>
struct OpOf<void (*Table::*)(const Op&)> {
  using type = Op;
};

}  // namespace strata::kernels
